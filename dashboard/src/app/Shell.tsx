import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouter } from "@tanstack/react-router";
import { IconDatabase, IconDeviceFloppy, IconFlask, IconListDetails, IconPlus, IconServer2 } from "@tabler/icons-react";
import { useEffect } from "react";
import { meQuery } from "@/features/auth/api/session";
import { MockBanner } from "@/features/auth/components/MockBanner";
import { useLiveEvents } from "@/features/events/useLiveEvents";
import { DiskBanner } from "@/features/storage/components/DiskBanner";
import type { StreamStatus } from "@/lib/stream";
import { Mark } from "@/components/ui/Mark";
import { Palette } from "./Palette";
import classes from "./Shell.module.css";
import { ShellFooter } from "./ShellFooter";

const NAVIGATION = [
  { to: "/jobs", label: "Jobs", icon: IconListDetails },
  { to: "/jobs/new", label: "New job", icon: IconPlus },
  { to: "/experiments", label: "Experiments", icon: IconFlask },
  { to: "/cluster", label: "Cluster", icon: IconServer2 },
  { to: "/checkpoints", label: "Checkpoints", icon: IconDeviceFloppy },
  { to: "/storage", label: "Storage", icon: IconDatabase },
] as const;

/** Pages below these are theirs. */
const DEEP: ReadonlySet<string> = new Set(["/cluster", "/experiments"]);

export function Shell() {
  const status = useLiveEvents();
  useSignOutWhenExpired(status);
  return (
    <div className={classes.shell}>
      <a href="#content" className="skip-link">
        Skip to content
      </a>
      <aside className={classes.sidebar}>
        <Link to="/jobs" className={classes.brand} aria-label="Paceline, jobs">
          <Mark />
          <span>Paceline</span>
        </Link>
        <nav className={classes.nav} aria-label="Main">
          {NAVIGATION.map(({ to, label, icon: Icon }) => (
            <Link
              key={to}
              to={to}
              className={classes.link}
              activeOptions={{ exact: !DEEP.has(to), includeSearch: false }}
              activeProps={{ "data-active": true }}
            >
              <Icon size={16} stroke={1.7} aria-hidden />
              {label}
            </Link>
          ))}
        </nav>
        <ShellFooter status={status} />
      </aside>
      <main id="content" className={classes.content} tabIndex={-1}>
        <MockBanner />
        <DiskBanner />
        <Outlet />
      </main>
      <Palette />
    </div>
  );
}

const ASK_AGAIN_MS = 2_000;

/**
 * A session may end while the page is open: any 401 asks `me` again, and a null answer leads here. A refused stream does not
 * tell its 401 to the page, so while it waits `me` is asked too: most pages request nothing else by themselves.
 */
function useSignOutWhenExpired(status: StreamStatus) {
  const { data: me } = useQuery({ ...meQuery, refetchInterval: status === "waiting" && ASK_AGAIN_MS });
  const router = useRouter();
  useEffect(() => {
    if (me === null) void router.navigate({ to: "/login", search: { next: router.state.location.href } });
  }, [me, router]);
}
