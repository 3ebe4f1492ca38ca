/** The order of a history. Pure. */
import type { Event } from "@/lib/types";

/**
 * Events as they were recorded (`seq`), the newest first, with times that never go back.
 *
 * A decision is dated when the coordinator begins to make it, and recorded when it is made: what is recorded in between has a later
 * time and a smaller number. Such a decision is shown at the time of the event recorded before it.
 */
export function newestFirst(events: readonly Event[]): Event[] {
  let latest = "";
  const recorded = events
    .toSorted((a, b) => a.seq - b.seq)
    .map((event) => {
      latest = Date.parse(event.time) < Date.parse(latest) ? latest : event.time;
      return { ...event, time: latest };
    });
  return recorded.reverse();
}
