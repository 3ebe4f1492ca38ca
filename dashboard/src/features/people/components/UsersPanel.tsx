import { Button, NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { dateTime } from "@/lib/format";
import { useMe } from "@/lib/me";
import type { Role, User } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { usersQuery, useUserChange } from "../api/people";
import { ago, ROLES } from "../people";
import { LoginLinkDialog } from "./LoginLinkDialog";
import { NewUserDialog } from "./NewUserDialog";
import classes from "./People.module.css";

/** Who may sign in, and what each may do. */
export function UsersPanel() {
  const query = useQuery(usersQuery);
  const now = useServerNow(30_000);
  const [creating, setCreating] = useState(false);
  const [linked, setLinked] = useState<User | null>(null);
  const add = (
    <Button leftSection={<IconPlus size={14} />} onClick={() => setCreating(true)}>
      New user
    </Button>
  );
  return (
    <Panel title="Users" actions={add} flush>
      <PanelStates source={query} what="the users" rows={4}>
        {(users) => (
          <DataTable
            label="Users"
            rows={users}
            columns={columns(now, setLinked)}
            rowId={({ id }) => id}
            rowProps={muted}
          />
        )}
      </PanelStates>
      {creating && (
        <NewUserDialog
          onClose={() => setCreating(false)}
          onCreated={(user) => {
            setCreating(false);
            setLinked(user);
          }}
        />
      )}
      {linked && <LoginLinkDialog user={linked} onClose={() => setLinked(null)} />}
    </Panel>
  );
}

const muted = ({ disabled }: User) => ({ "data-muted": disabled });

function columns(now: number, onLink: (user: User) => void): Column<User>[] {
  return [
    { id: "name", header: "Name", cell: (user) => <Name user={user} />, value: ({ name }) => name },
    { id: "role", header: "Role", cell: (user) => <RoleSelect user={user} />, value: ({ role }) => role },
    {
      id: "state",
      header: "State",
      cell: ({ disabled }) => (
        <StateBadge state={disabled ? "disabled" : "enabled"} tone={disabled ? undefined : "good"} />
      ),
      value: ({ disabled }) => (disabled ? "disabled" : "enabled"),
    },
    {
      id: "active",
      header: "Last active",
      cell: ({ last_active_at: at }) => ago(at, now),
      value: ({ last_active_at: at }) => (at ? Date.parse(at) : null),
      sortFirst: "down",
    },
    { id: "created", header: "Created", cell: ({ created_at: at }) => dateTime(at), value: ({ created_at: at }) => at },
    { id: "actions", header: "", cell: (user) => <Actions user={user} onLink={() => onLink(user)} />, numeric: true },
  ];
}

function Name({ user: { id, name } }: { user: User }) {
  return (
    <>
      {name} {useMe()?.user_id === id && <span className="muted">(you)</span>}
    </>
  );
}

function RoleSelect({ user: { id, name, role } }: { user: User }) {
  const change = useUserChange(id);
  return (
    <>
      <NativeSelect
        aria-label={`Role of ${name}`}
        size="xs"
        w={110}
        value={change.isPending ? change.variables.role : role}
        disabled={change.isPending}
        data={ROLES.map(({ value, label }) => ({ value, label }))}
        onChange={(event) => change.mutate({ role: event.currentTarget.value as Role })}
      />
      <Refused error={change.error} />
    </>
  );
}

function Refused({ error }: { error: unknown }) {
  if (!error) return null;
  return (
    <div className={classes.refused} role="alert">
      <ErrorText error={error} />
    </div>
  );
}

function Actions({ user, onLink }: { user: User; onLink(): void }) {
  const change = useUserChange(user.id);
  const [asking, setAsking] = useState(false);
  const isMe = useMe()?.user_id === user.id;
  return (
    <span className={classes.actions}>
      <Guarded refused={user.disabled ? `${user.name} is disabled and cannot sign in.` : null}>
        <Button size="compact-xs" variant="default" onClick={onLink} aria-label={`Login link for ${user.name}`}>
          Login link
        </Button>
      </Guarded>
      {user.disabled ? (
        <Button
          size="compact-xs"
          variant="default"
          loading={change.isPending}
          onClick={() => change.mutate({ disabled: false })}
          aria-label={`Enable ${user.name}`}
        >
          Enable
        </Button>
      ) : (
        <Guarded refused={isMe ? "You cannot lock yourself out." : null}>
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setAsking(true)}
            aria-label={`Disable ${user.name}`}
          >
            Disable
          </Button>
        </Guarded>
      )}
      <Confirm
        opened={asking}
        title={`Disable ${user.name}?`}
        verb="Disable user"
        busy={change.isPending}
        error={change.error}
        onClose={() => setAsking(false)}
        onConfirm={() => change.mutate({ disabled: true }, { onSuccess: () => setAsking(false) })}
      >
        Browsers that are signed in as <strong>{user.name}</strong> are signed out, and the API keys stop working, at
        once. Jobs keep running. You can enable the user again later.
      </Confirm>
    </span>
  );
}
