import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { dateTime, MISSING } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { NotificationChannel } from "@/lib/types";
import { channelsQuery, useDeleteChannel, useSwitchChannel, useTestChannel } from "../api/notifications";
import { kindLabel, targetOf } from "../notifications";
import { NewChannelDialog } from "./NewChannelDialog";
import classes from "./Notifications.module.css";

/** Where notifications go. Only admins change channels; everybody sees which there are. */
export function ChannelsPanel() {
  const query = useQuery(channelsQuery);
  const refused = useRoleRefusal("admin");
  const [adding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState<NotificationChannel | null>(null);
  const test = useTestChannel();
  const add = (
    <Guarded refused={refused}>
      <Button leftSection={<IconPlus size={14} />} onClick={() => setAdding(true)}>
        New channel
      </Button>
    </Guarded>
  );
  return (
    <Panel title="Channels" actions={add} flush>
      <TestAnswer test={test} />
      <PanelStates
        source={query}
        what="the channels"
        isEmpty={(channels) => channels.length === 0}
        empty={
          <EmptyState title="No channels">
            A channel is where notifications go: a webhook, Slack, or e-mail addresses.
          </EmptyState>
        }
      >
        {(channels) => (
          <DataTable
            stacks
            label="Channels"
            rows={channels}
            columns={columns(refused, test, setDeleting)}
            rowId={({ id }) => id}
            rowProps={({ enabled }) => ({ "data-muted": !enabled })}
          />
        )}
      </PanelStates>
      {adding && <NewChannelDialog onClose={() => setAdding(false)} />}
      {deleting && <DeleteDialog channel={deleting} onClose={() => setDeleting(null)} />}
    </Panel>
  );
}

type Test = ReturnType<typeof useTestChannel>;

function TestAnswer({ test: { data, error } }: { test: Test }) {
  return (
    <div role="status">
      {error != null && (
        <p className={classes.bad}>
          <ErrorText error={error} alone />
        </p>
      )}
      {data && (
        <p className={data.state === "delivered" ? classes.answer : classes.bad}>
          Test of <strong>{data.channel_name}</strong>: {data.state}, {data.answer}
        </p>
      )}
    </div>
  );
}

function columns(
  refused: string | null,
  test: Test,
  onDelete: (channel: NotificationChannel) => void,
): Column<NotificationChannel>[] {
  return [
    { id: "name", header: "Name", cell: ({ name }) => name, value: ({ name }) => name },
    { id: "kind", header: "Kind", cell: ({ kind }) => kindLabel(kind), value: ({ kind }) => kind },
    { id: "target", header: "To", prose: true, cell: targetOf, value: targetOf },
    {
      id: "state",
      header: "State",
      cell: ({ enabled }) => <StateBadge state={enabled ? "on" : "off"} tone={enabled ? "good" : undefined} />,
      value: ({ enabled }) => (enabled ? "on" : "off"),
    },
    { id: "members", header: "Who may use it", cell: ({ for_members: all }) => (all ? "members, admins" : "admins") },
    { id: "last", header: "Last answer", prose: true, width: 240, cell: (channel) => <LastAnswer channel={channel} /> },
    {
      id: "actions",
      header: "",
      numeric: true,
      cell: (channel) => <Actions channel={channel} refused={refused} test={test} onDelete={() => onDelete(channel)} />,
    },
  ];
}

function LastAnswer({ channel: { last } }: { channel: NotificationChannel }) {
  if (!last) return MISSING;
  return (
    <>
      <StateBadge
        state={last.state}
        tone={last.state === "delivered" ? "good" : last.state === "failed" ? "bad" : "warn"}
      />{" "}
      {last.answer ?? MISSING} <span className="muted">{dateTime(last.created_at)}</span>
    </>
  );
}

interface ActionsProps {
  channel: NotificationChannel;
  refused: string | null;
  test: Test;
  onDelete(): void;
}

function Actions({ channel: { id, name, enabled }, refused, test, onDelete }: ActionsProps) {
  const change = useSwitchChannel(id);
  const isTesting = test.isPending && test.variables === id;
  return (
    <span className={classes.actions}>
      <Guarded refused={refused ?? (test.isPending && !isTesting ? "Another test is under way." : null)}>
        <Button
          size="compact-xs"
          variant="default"
          loading={isTesting}
          onClick={() => test.mutate(id)}
          aria-label={`Test ${name}`}
        >
          Test
        </Button>
      </Guarded>
      <Guarded refused={refused}>
        <Button
          size="compact-xs"
          variant="default"
          loading={change.isPending}
          onClick={() => change.mutate(!enabled)}
          aria-label={`${enabled ? "Switch off" : "Switch on"} ${name}`}
        >
          {enabled ? "Switch off" : "Switch on"}
        </Button>
      </Guarded>
      <Guarded refused={refused}>
        <Button size="compact-xs" variant="default" onClick={onDelete} aria-label={`Delete ${name}`}>
          Delete
        </Button>
      </Guarded>
    </span>
  );
}

function DeleteDialog({ channel: { id, name }, onClose }: { channel: NotificationChannel; onClose(): void }) {
  const remove = useDeleteChannel();
  return (
    <Confirm
      opened
      title={`Delete ${name}?`}
      verb="Delete channel"
      busy={remove.isPending}
      error={remove.error}
      onClose={onClose}
      onConfirm={() => remove.mutate(id, { onSuccess: onClose })}
    >
      The channel <strong>{name}</strong>, its address and its rules are deleted, and what still waits is not sent. The
      history stays. This cannot be undone.
    </Confirm>
  );
}
