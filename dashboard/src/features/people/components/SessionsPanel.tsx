import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { dateTime, MISSING } from "@/lib/format";
import { useMe } from "@/lib/me";
import type { BrowserSession } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { sessionsQuery, useEndSession } from "../api/people";
import { ago, signedInBy } from "../people";

/** The browsers that are signed in: the caller's own, for an admin those of all users. */
export function SessionsPanel() {
  const query = useQuery(sessionsQuery);
  const now = useServerNow(30_000);
  const isAdmin = useMe()?.role === "admin";
  const [ending, setEnding] = useState<BrowserSession | null>(null);
  return (
    <Panel title="Signed-in browsers" flush>
      <PanelStates
        source={query}
        what="the sessions"
        isEmpty={(sessions) => sessions.length === 0}
        empty={
          <EmptyState title="No browser is signed in">A browser signs in with a login link or an API key.</EmptyState>
        }
      >
        {(sessions) => (
          <DataTable
            label="Sessions"
            rows={sessions}
            columns={columns(now, isAdmin, setEnding)}
            rowId={({ id }) => id}
          />
        )}
      </PanelStates>
      {ending && <EndDialog session={ending} onClose={() => setEnding(null)} />}
    </Panel>
  );
}

function columns(now: number, isAdmin: boolean, onEnd: (session: BrowserSession) => void): Column<BrowserSession>[] {
  const user: Column<BrowserSession> = {
    id: "user",
    header: "User",
    cell: (session) => session.user_name,
    value: (session) => session.user_name,
  };
  return [
    ...(isAdmin ? [user] : []),
    {
      id: "device",
      header: "Browser",
      cell: ({ device, current }) => (
        <>
          {device ?? MISSING} {current && <span className="muted">(this one)</span>}
        </>
      ),
      value: ({ device }) => device,
    },
    { id: "address", header: "Address", cell: ({ address }) => address ?? MISSING, value: ({ address }) => address },
    { id: "by", header: "Signed in by", cell: signedInBy, value: signedInBy },
    {
      id: "used",
      header: "Last used",
      cell: ({ last_used_at: at }) => ago(at, now),
      value: ({ last_used_at: at }) => (at ? Date.parse(at) : null),
      sortFirst: "down",
    },
    {
      id: "expires",
      header: "Expires",
      cell: ({ expires_at: at }) => dateTime(at),
      value: ({ expires_at: at }) => at,
    },
    {
      id: "actions",
      header: "",
      numeric: true,
      cell: (session) => (
        <Button
          size="compact-xs"
          variant="default"
          onClick={() => onEnd(session)}
          aria-label={`End the session of ${nameOf(session)}`}
        >
          End
        </Button>
      ),
    },
  ];
}

const nameOf = ({ user_name: user, device }: BrowserSession) => (device ? `${user}, ${device}` : user);

function EndDialog({ session, onClose }: { session: BrowserSession; onClose(): void }) {
  const end = useEndSession();
  return (
    <Confirm
      opened
      title={`End the session of ${session.user_name}?`}
      verb="End session"
      busy={end.isPending}
      error={end.error}
      onClose={onClose}
      onConfirm={() => end.mutate(session.id, { onSuccess: onClose })}
    >
      {session.current
        ? "This is the browser that you are using. You will be signed out at once."
        : `${session.device ?? "The browser"} at ${session.address ?? "an unknown address"} is signed out at once.`}
    </Confirm>
  );
}
