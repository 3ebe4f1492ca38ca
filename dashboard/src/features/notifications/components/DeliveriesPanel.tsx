import { Button, Select } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { dateTime } from "@/lib/format";
import { useMe } from "@/lib/me";
import type { Delivery } from "@/lib/types";
import { channelsQuery, deliveriesQuery, rulesQuery, useSendAgain } from "../api/notifications";
import { answerOf } from "../notifications";
import classes from "./Notifications.module.css";

interface Props {
  channel?: string;
  onChannel(channel: string | undefined): void;
}

/** What was sent, is to be sent or could not be; the newest first. */
export function DeliveriesPanel({ channel, onChannel }: Props) {
  const query = useInfiniteQuery(deliveriesQuery(channel));
  const channels = useQuery(channelsQuery).data ?? [];
  const again = useSendAgain();
  const refusalOf = useSendAgainRefusal();
  const found = query.data?.pages.flatMap(({ items }) => items);
  return (
    <Panel
      title="History"
      actions={
        <Select
          aria-label="Channel"
          placeholder="All channels"
          w={170}
          clearable
          data={channels.map(({ id, name }) => ({ value: id, label: name }))}
          value={channel ?? null}
          onChange={(chosen) => onChannel(chosen ?? undefined)}
        />
      }
      flush
    >
      <div role="status">
        {again.error != null && (
          <p className={classes.bad}>
            <ErrorText error={again.error} alone />
          </p>
        )}
      </div>
      <PanelStates
        source={{ ...query, data: found }}
        what="the history"
        rows={6}
        isEmpty={(items) => items.length === 0}
        empty={<EmptyState title="Nothing was sent yet">Messages of the last 90 days stand here.</EmptyState>}
      >
        {(items) => (
          <DataTable stacks label="History" rows={items} columns={columns(refusalOf, again)} rowId={({ id }) => id} />
        )}
      </PanelStates>
      {query.hasNextPage && (
        <div className={classes.more}>
          <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
            Show older
          </Button>
        </div>
      )}
    </Panel>
  );
}

/** Admins send again whatever has ended, others what a rule of their own has sent. */
function useSendAgainRefusal(): (delivery: Delivery) => string | null {
  const me = useMe();
  const rules = useQuery(rulesQuery).data ?? [];
  const own = new Set(rules.filter(({ created_by_id: id }) => id === me?.user_id).map(({ id }) => id));
  return ({ rule_id: rule }) => {
    if (me?.role === "admin" || (me?.role === "member" && rule !== null && own.has(rule))) return null;
    return "Only admins may send it again, and who made its rule.";
  };
}

const TONES = { delivered: "good", failed: "bad", pending: "warn" } as const;

function columns(
  refusalOf: (delivery: Delivery) => string | null,
  again: ReturnType<typeof useSendAgain>,
): Column<Delivery>[] {
  return [
    { id: "time", header: "Time", cell: ({ created_at: at }) => dateTime(at) },
    { id: "channel", header: "Channel", cell: ({ channel_name: name }) => name },
    { id: "title", header: "Message", prose: true, width: 420, cell: (delivery) => <Title delivery={delivery} /> },
    { id: "state", header: "State", cell: ({ state }) => <StateBadge state={state} tone={TONES[state]} /> },
    { id: "answer", header: "Answer", prose: true, width: 220, cell: (delivery) => <Answer delivery={delivery} /> },
    {
      id: "actions",
      header: "",
      numeric: true,
      cell: (delivery) =>
        delivery.state !== "pending" && (
          <Guarded refused={refusalOf(delivery)}>
            <Button
              size="compact-xs"
              variant="default"
              loading={again.isPending && again.variables === delivery.id}
              onClick={() => again.mutate(delivery.id)}
              aria-label={`Send again: ${delivery.title}`}
            >
              Send again
            </Button>
          </Guarded>
        ),
    },
  ];
}

function Title({ delivery: { title, job_id: jobId } }: { delivery: Delivery }) {
  return (
    <>
      {title}
      {jobId && (
        <>
          {" "}
          <Link to="/jobs/$jobId" params={{ jobId }}>
            job
          </Link>
        </>
      )}
    </>
  );
}

function Answer({ delivery }: { delivery: Delivery }) {
  const { state, attempts, next_attempt_at: next } = delivery;
  return (
    <>
      {answerOf(delivery)}
      {state === "pending" && attempts > 0 && next && <span className="muted"> next attempt {dateTime(next)}</span>}
    </>
  );
}
