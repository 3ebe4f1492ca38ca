import { Button, Select } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { age, dateTime, sentence } from "@/lib/format";
import type { Event } from "@/lib/types";
import { jobEventsQuery } from "../api/events";
import { countsByKind, entriesOf, EVENT_KIND_NAMES, EVENT_KINDS, kindsOf, type Entry, type EventKind } from "../kinds";
import { newestFirst } from "../order";
import classes from "./Timeline.module.css";

interface Props {
  jobId: string;
  /** The kind of events that is shown; undefined: all. */
  kind: EventKind | undefined;
  onKind(kind: EventKind | undefined): void;
}

/** Everything that happened to a job, with who did it and why; newest first. */
export function Timeline({ jobId, kind, onKind }: Props) {
  const query = useInfiniteQuery(jobEventsQuery(jobId));
  const { hasNextPage, isFetching, isError, fetchNextPage } = query;
  // The newest stand on the last page, and the newest are what one comes for.
  useEffect(() => {
    if (hasNextPage && !isFetching && !isError) void fetchNextPage();
  }, [hasNextPage, isFetching, isError, fetchNextPage]);
  const all = query.data?.pages.flatMap((page) => page.items) ?? [];
  const shown = kind === undefined ? all : all.filter((event) => kindsOf(event).includes(kind));
  return (
    <Panel title="Timeline" flush actions={<KindSelect events={all} kind={kind} onKind={onKind} />}>
      <PanelStates
        source={query}
        what="the timeline"
        rows={6}
        isEmpty={(data) => data.pages[0]!.items.length === 0}
        empty={<EmptyState title="Nothing has happened yet" />}
      >
        {() =>
          shown.length === 0 ? (
            <EmptyState
              title={`No events of this kind: ${EVENT_KINDS[kind!]}`}
              action={
                <Button variant="default" onClick={() => onKind(undefined)}>
                  Show all events
                </Button>
              }
            />
          ) : (
            <ol className={classes.list} aria-label="Events, newest first">
              {entriesOf(newestFirst(shown)).map((entry) => (
                <TimelineItem key={entry.event.seq} entry={entry} />
              ))}
            </ol>
          )
        }
      </PanelStates>
    </Panel>
  );
}

/** Kinds without events are left out, but for the chosen one. */
function KindSelect({ events, kind, onKind }: Omit<Props, "jobId"> & { events: readonly Event[] }) {
  const counts = countsByKind(events);
  return (
    <Select
      aria-label="Filter events by kind"
      placeholder="All events"
      w={230}
      clearable
      clearButtonProps={{ "aria-label": "Show all events" }}
      data={EVENT_KIND_NAMES.filter((name) => counts[name] > 0 || name === kind).map((name) => ({
        value: name,
        label: `${EVENT_KINDS[name]} (${counts[name]})`,
      }))}
      value={kind ?? null}
      onChange={(chosen) => onKind((chosen ?? undefined) as EventKind | undefined)}
    />
  );
}

/** By what the event says happened, not by its words: a job may be called "failure". */
function toneOf({ type, data }: Event): "bad" | "good" | "neutral" {
  const { outcome, to } = (data ?? {}) as { outcome?: string; to?: string };
  if (outcome === "failed" || to === "failed" || to === "lost" || type === "checkpoint.damaged") return "bad";
  return type === "checkpoint.committed" || to === "completed" ? "good" : "neutral";
}

/** "Checkpoint of step 50: committed, deleted 3 min later": in place of an entry for each state. */
function wordsOf({ event, later }: Entry): string {
  const words = sentence(event.message || event.type.replaceAll(".", " "));
  const last = later.at(-1);
  if (!last) return words;
  const state = (last.data as { state?: string }).state ?? "changed";
  return `${words}, ${state} ${age(Date.parse(last.time) - Date.parse(event.time))} later`;
}

function TimelineItem({ entry }: { entry: Entry }) {
  const { event, later } = entry;
  return (
    <li className={classes.item} data-tone={toneOf(later.find((each) => toneOf(each) === "bad") ?? event)}>
      <time className={classes.time} dateTime={event.time}>
        {dateTime(event.time)}
      </time>
      <div className={classes.body}>
        <div className={classes.message}>{wordsOf(entry)}</div>
        <div className={classes.meta}>
          <code>{event.type}</code> by {event.actor.kind === "system" ? "Paceline" : event.actor.name}
          {event.cause && <> · {event.cause}</>}
          {event.generation != null && <> · generation {event.generation}</>}
        </div>
      </div>
    </li>
  );
}
