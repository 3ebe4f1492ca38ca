import { Kbd } from "@mantine/core";
import { useMergedRef } from "@mantine/hooks";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation, useRouter, useRouterState } from "@tanstack/react-router";
import {
  IconBell,
  IconBook,
  IconDatabase,
  IconDeviceFloppy,
  IconPackage,
  IconFlask,
  IconListDetails,
  IconPlus,
  IconSearch,
  IconServer2,
  IconUsers,
} from "@tabler/icons-react";
import { useEffect, useRef } from "react";
import { MockBanner } from "@/features/auth/components/MockBanner";
import { useLiveEvents } from "@/features/events/useLiveEvents";
import { DiskBanner } from "@/features/storage/components/DiskBanner";
import { keys } from "@/lib/keys";
import { meQuery, useMe } from "@/lib/me";
import type { StreamStatus } from "@/lib/stream";
import { useChosenInView } from "@/components/ui/useChosenInView";
import { useSideways } from "@/components/ui/useSideways";
import { Mark } from "@/components/ui/Mark";
import { MOD_KEY } from "./modKey";
import { Palette } from "./Palette";
import classes from "./Shell.module.css";
import { ShellFooter } from "./ShellFooter";
import { ShortcutHelp } from "./ShortcutHelp";
import { useShortcuts } from "./useShortcuts";

const NAVIGATION = [
  { to: "/jobs", label: "Jobs", icon: IconListDetails },
  { to: "/jobs/new", label: "New job", icon: IconPlus },
  { to: "/experiments", label: "Experiments", icon: IconFlask },
  { to: "/cluster", label: "Cluster", icon: IconServer2 },
  { to: "/checkpoints", label: "Checkpoints", icon: IconDeviceFloppy },
  { to: "/models", label: "Models", icon: IconPackage },
  { to: "/storage", label: "Storage", icon: IconDatabase },
  { to: "/notifications", label: "Notifications", icon: IconBell },
  { to: "/people", label: "People", icon: IconUsers },
] as const;

/** Pages below these are theirs. */
const DEEP: ReadonlySet<string> = new Set(["/cluster", "/experiments"]);

export function Shell() {
  const status = useLiveEvents();
  useSignOutWhenExpired(status);
  useForgetFormerUser();
  const { overlay, open, close } = useShortcuts();
  const nav = useRef<HTMLElement>(null);
  const sideways = useMergedRef(nav, useSideways());
  // On a phone the pages are a strip.
  useChosenInView(nav, "[data-active]", useLocation().pathname);
  const isLeaving = useRouterState({ select: ({ isLoading }) => isLoading });
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
        <button type="button" className={classes.search} aria-keyshortcuts="Control+K" onClick={() => open("palette")}>
          <IconSearch size={15} aria-hidden />
          <span>Go to…</span>
          <Kbd size="xs" aria-hidden>
            {MOD_KEY} K
          </Kbd>
        </button>
        <nav className={`${classes.nav} sideways`} ref={sideways} aria-label="Main">
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
          <a className={classes.link} href="/docs/index.html" target="_blank" rel="noopener">
            <IconBook size={16} stroke={1.7} aria-hidden />
            Docs
          </a>
        </nav>
        <ShellFooter status={status} onHelp={() => open("help")} />
      </aside>
      <main id="content" className={classes.content} tabIndex={-1} aria-busy={isLeaving || undefined}>
        <MockBanner />
        <DiskBanner />
        <Outlet />
      </main>
      <Palette opened={overlay === "palette"} onClose={close} />
      <ShortcutHelp opened={overlay === "help"} onClose={close} />
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
    if (me === null) void router.navigate({ to: "/login", search: { ended: true, next: router.state.location.href } });
  }, [me, router]);
}

/** Another window of the browser may sign in as somebody else, as whom this page goes on: what the coordinator told the former user alone goes. */
function useForgetFormerUser() {
  const client = useQueryClient();
  const userId = useMe()?.user_id;
  const former = useRef(userId);
  useEffect(() => {
    if (userId === undefined) return;
    if (former.current !== undefined && former.current !== userId)
      for (const queryKey of [keys.people, keys.notifications]) void client.resetQueries({ queryKey });
    former.current = userId;
  }, [client, userId]);
}
