import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { dateTime, sentence } from "@/lib/format";
import type { Event } from "@/lib/types";
import { jobEventsQuery } from "../api/events";
import { newestFirst } from "../order";
import classes from "./Timeline.module.css";

/** Everything that happened to a job, with who did it and why; newest first. */
export function Timeline({ jobId }: { jobId: string }) {
  const query = useInfiniteQuery(jobEventsQuery(jobId));
  const { hasNextPage, isFetching, isError, fetchNextPage } = query;
  // The newest stand on the last page, and the newest are what one comes for.
  useEffect(() => {
    if (hasNextPage && !isFetching && !isError) void fetchNextPage();
  }, [hasNextPage, isFetching, isError, fetchNextPage]);
  return (
    <Panel title="Timeline" flush>
      <PanelStates
        source={query}
        what="the timeline"
        rows={6}
        isEmpty={(data) => data.pages[0]!.items.length === 0}
        empty={<EmptyState title="Nothing has happened yet" />}
      >
        {(data) => (
          <ol className={classes.list} aria-label="Events, newest first">
            {newestFirst(data.pages.flatMap((page) => page.items)).map((event) => (
              <TimelineItem key={event.seq} event={event} />
            ))}
          </ol>
        )}
      </PanelStates>
    </Panel>
  );
}

/** By what the event says happened, not by its words: a job may be called "failure". */
function toneOf({ type, data }: Event): "bad" | "good" | "neutral" {
  const { outcome, to } = (data ?? {}) as { outcome?: string; to?: string };
  if (outcome === "failed" || to === "failed" || to === "lost" || type === "checkpoint.damaged") return "bad";
  return type === "checkpoint.committed" || to === "completed" ? "good" : "neutral";
}

function TimelineItem({ event }: { event: Event }) {
  return (
    <li className={classes.item} data-tone={toneOf(event)}>
      <time className={classes.time} dateTime={event.time}>
        {dateTime(event.time)}
      </time>
      <div className={classes.body}>
        <div className={classes.message}>{sentence(event.message || event.type.replaceAll(".", " "))}</div>
        <div className={classes.meta}>
          <code>{event.type}</code> by {event.actor.kind === "system" ? "Paceline" : event.actor.name}
          {event.cause && <> · {event.cause}</>}
          {event.generation != null && <> · generation {event.generation}</>}
        </div>
      </div>
    </li>
  );
}
