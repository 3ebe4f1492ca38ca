import { ActionIcon, Tooltip, useMantineColorScheme } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconDeviceDesktop, IconLogout, IconMoon, IconSun } from "@tabler/icons-react";
import { meQuery, useLogout } from "@/features/auth/api/session";
import type { StreamStatus } from "@/lib/stream";
import classes from "./Shell.module.css";

const NEXT = { auto: "light", light: "dark", dark: "auto" } as const;
const ICONS = { auto: IconDeviceDesktop, light: IconSun, dark: IconMoon };
const NAMES = { auto: "system", light: "light", dark: "dark" };

export function ShellFooter({ status }: { status: StreamStatus }) {
  const { data: me } = useQuery(meQuery);
  const logout = useLogout();
  return (
    <div className={classes.footer}>
      <span className={classes.live} data-status={status} role="status">
        {status === "live" ? "Live" : status === "waiting" ? "Reconnecting" : "Connecting"}
      </span>
      <div className={classes.user}>
        <span className={classes.userName} title={me?.role}>
          {me?.name}
        </span>
        <ColorSchemeButton />
        {!me?.guest && (
          <Tooltip label="Sign out">
            <ActionIcon variant="subtle" color="gray" size="sm" aria-label="Sign out" onClick={() => logout.mutate()}>
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
        size="sm"
        aria-label={label}
        onClick={() => setColorScheme(NEXT[colorScheme])}
      >
        <Icon size={15} />
      </ActionIcon>
    </Tooltip>
  );
}
