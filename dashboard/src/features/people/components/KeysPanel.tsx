import { Button, Checkbox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { DocsLink } from "@/components/ui/DocsLink";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { dateTime } from "@/lib/format";
import { useMe } from "@/lib/me";
import type { ApiKey } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { apiKeysQuery, useRevokeKey } from "../api/people";
import { ago, keyState, roleLabel } from "../people";
import { NewKeyDialog } from "./NewKeyDialog";

/** The keys of programs and terminals: the caller's own, for an admin those of all users. */
export function KeysPanel() {
  const query = useQuery(apiKeysQuery);
  const now = useServerNow(30_000);
  const isAdmin = useMe()?.role === "admin";
  const [over, setOver] = useState(false);
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<ApiKey | null>(null);
  const add = (
    <Button leftSection={<IconPlus size={14} />} onClick={() => setCreating(true)}>
      New API key
    </Button>
  );
  const shown = (query.data ?? []).filter((key) => over || keyState(key, now) === "active");
  return (
    <Panel
      title="API keys"
      actions={
        <>
          <Checkbox
            label="Revoked and expired"
            checked={over}
            onChange={(event) => setOver(event.currentTarget.checked)}
          />
          {add}
        </>
      }
      flush
    >
      <PanelStates
        source={query}
        what="the API keys"
        isEmpty={() => shown.length === 0}
        empty={
          <EmptyState title="No API keys" action={add}>
            A key signs a terminal, a program or a browser in. In a terminal: <code>paceline login --api-key KEY</code>.{" "}
            <DocsLink page="people.html">People and keys</DocsLink>
          </EmptyState>
        }
      >
        {() => (
          <DataTable
            label="API keys"
            rows={shown}
            columns={columns(now, isAdmin, setRevoking)}
            rowId={({ id }) => id}
            rowProps={(key) => ({ "data-muted": keyState(key, now) !== "active" })}
          />
        )}
      </PanelStates>
      {creating && <NewKeyDialog onClose={() => setCreating(false)} />}
      {revoking && <RevokeDialog apiKey={revoking} onClose={() => setRevoking(null)} />}
    </Panel>
  );
}

function columns(now: number, isAdmin: boolean, onRevoke: (key: ApiKey) => void): Column<ApiKey>[] {
  const user: Column<ApiKey> = {
    id: "user",
    header: "User",
    cell: (key) => key.user_name,
    value: (key) => key.user_name,
  };
  return [
    { id: "name", header: "Name", cell: ({ name }) => name, value: ({ name }) => name },
    ...(isAdmin ? [user] : []),
    { id: "prefix", header: "Begins with", cell: ({ prefix }) => <span className="mono">{prefix}</span> },
    { id: "role", header: "Role", cell: ({ role }) => roleLabel(role), value: ({ role }) => role },
    {
      id: "state",
      header: "State",
      cell: (key) => <State apiKey={key} now={now} />,
      value: (key) => keyState(key, now),
    },
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
      cell: ({ expires_at: at }) => (at ? dateTime(at) : "never"),
      value: ({ expires_at: at }) => at,
    },
    {
      id: "actions",
      header: "",
      numeric: true,
      cell: (key) =>
        keyState(key, now) === "active" && (
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => onRevoke(key)}
            aria-label={`Revoke ${key.name} (${key.prefix})`}
          >
            Revoke
          </Button>
        ),
    },
  ];
}

function State({ apiKey, now }: { apiKey: ApiKey; now: number }) {
  const state = keyState(apiKey, now);
  return <StateBadge state={state} tone={state === "active" ? "good" : undefined} />;
}

function RevokeDialog({ apiKey: { id, name, user_name: user }, onClose }: { apiKey: ApiKey; onClose(): void }) {
  const revoke = useRevokeKey();
  return (
    <Confirm
      opened
      title={`Revoke ${name}?`}
      verb="Revoke key"
      busy={revoke.isPending}
      error={revoke.error}
      onClose={onClose}
      onConfirm={() => revoke.mutate(id, { onSuccess: onClose })}
    >
      Programs that use the key <strong>{name}</strong> of {user} are refused at once. Keys that were made with it and
      sessions that it signed in end as well. This cannot be undone.
    </Confirm>
  );
}
