import { ActionIcon, Tooltip, useMantineColorScheme } from "@mantine/core";
import { useRouter } from "@tanstack/react-router";
import { IconDeviceDesktop, IconKeyboard, IconLogout, IconMoon, IconSun } from "@tabler/icons-react";
import { useLogout } from "@/features/auth/api/session";
import { useMe } from "@/lib/me";
import type { StreamStatus } from "@/lib/stream";
import classes from "./Shell.module.css";

const NEXT = { auto: "light", light: "dark", dark: "auto" } as const;
const ICONS = { auto: IconDeviceDesktop, light: IconSun, dark: IconMoon };
const NAMES = { auto: "system", light: "light", dark: "dark" };

export function ShellFooter({ status, onHelp }: { status: StreamStatus; onHelp(): void }) {
  const me = useMe();
  const router = useRouter();
  const logout = useLogout(() => router.navigate({ to: "/login", search: { next: router.state.location.href } }));
  return (
    <div className={classes.footer}>
      <span className={classes.live} data-status={status} role="status">
        {status === "live" ? "Live" : status === "waiting" ? "Reconnecting" : "Connecting"}
      </span>
      <div className={classes.user}>
        <span className={classes.userName} title={me?.role}>
          {me?.name}
        </span>
        <Tooltip label="Keyboard shortcuts (?)">
          <ActionIcon variant="subtle" color="gray" size={24} aria-label="Keyboard shortcuts" onClick={onHelp}>
            <IconKeyboard size={15} />
          </ActionIcon>
        </Tooltip>
        <ColorSchemeButton />
        {!me?.guest && (
          <Tooltip label="Sign out">
            <ActionIcon variant="subtle" color="gray" size={24} aria-label="Sign out" onClick={() => logout.mutate()}>
              <IconLogout size={15} />
            </ActionIcon>
          </Tooltip>
        )}
      </div>
    </div>
  );
}

function ColorSchemeButton() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const Icon = ICONS[colorScheme];
  const label = `Colour scheme: ${NAMES[colorScheme]}; change to ${NAMES[NEXT[colorScheme]]}`;
  return (
    <Tooltip label={label}>
      <ActionIcon
        variant="subtle"
        color="gray"
        size={24}
        aria-label={label}
        onClick={() => setColorScheme(NEXT[colorScheme])}
      >
        <Icon size={15} />
      </ActionIcon>
    </Tooltip>
  );
}
