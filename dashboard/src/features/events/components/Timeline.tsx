import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { dateTime, title } from "@/lib/format";
import type { Event } from "@/lib/types";
import { jobEventsQuery } from "../api/events";
import classes from "./Timeline.module.css";

/** Everything that happened to a job, with who did it and why; newest first. */
export function Timeline({ jobId }: { jobId: string }) {
  const query = useInfiniteQuery(jobEventsQuery(jobId));
  const more = query.hasNextPage && (
    <Button size="compact-xs" variant="default" loading={query.isFetchingNextPage} onClick={() => query.fetchNextPage()}>Load newer</Button>
  );
  return (
    <Panel title="Timeline" actions={more} flush>
      <PanelStates source={query} what="the timeline" rows={6} isEmpty={(data) => data.pages[0]!.items.length === 0} empty={<EmptyState title="Nothing has happened yet" />}>
        {(data) => (
          <ol className={classes.list} aria-label="Events, newest first">
            {data.pages.flatMap((page) => page.items).reverse().map((event) => <TimelineItem key={event.seq} event={event} />)}
          </ol>
        )}
      </PanelStates>
    </Panel>
  );
}

function TimelineItem({ event }: { event: Event }) {
  const tone = /fail|crash|lost|damaged/.test(`${event.type} ${event.message} ${event.cause}`) ? "bad" : event.type.startsWith("checkpoint") ? "good" : "neutral";
  return (
    <li className={classes.item} data-tone={tone}>
      <time className={classes.time} dateTime={event.time}>{dateTime(event.time)}</time>
      <div className={classes.body}>
        <div className={classes.message}>{event.message || title(event.type.replaceAll(".", " "))}</div>
        <div className={classes.meta}>
          <code>{event.type}</code> by {event.actor.kind === "system" ? "Paceline" : event.actor.name}
          {event.cause && <> · {event.cause}</>}
          {event.generation != null && <> · generation {event.generation}</>}
        </div>
      </div>
    </li>
  );
}
