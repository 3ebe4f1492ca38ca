/** Which events a history shows, and checkpoints as one entry each. Pure. */
import type { Event } from "@/lib/types";

/** What a history can be limited to, in the order in which it is offered. */
export const EVENT_KINDS = {
  states: "States",
  recoveries: "Recoveries",
  checkpoints: "Checkpoints",
  losses: "Losses and evaluations",
  ranks: "Ranks",
  people: "People's actions",
  other: "Other",
} as const;
export type EventKind = keyof typeof EVENT_KINDS;
export const EVENT_KIND_NAMES = Object.keys(EVENT_KINDS) as EventKind[];

const BY_TYPE: Readonly<Record<string, EventKind>> = {
  "job.submitted": "states",
  "job.state": "states",
  "job.placed": "states",
  "job.pending": "states",
  "job.set_back": "states",
  "job.closed_up": "recoveries",
  "job.fell_back": "recoveries",
  "job.carried_on": "recoveries",
  "job.grew": "recoveries",
  "job.shrank": "recoveries",
  "job.culprit_known": "recoveries",
  "job.hang_suspected": "recoveries",
  "job.hang_withdrawn": "recoveries",
  "checkpoint.restored": "recoveries",
  "job.loss_not_finite": "losses",
  "job.loss_spike": "losses",
  "job.evaluated": "losses",
  "job.sample": "losses",
  "job.parked": "ranks",
  "job.let_go": "ranks",
  "job.moved": "ranks",
  "job.file_saved": "checkpoints",
};

/** The kinds that an event belongs to: what a person did belongs to people too. */
export function kindsOf({ type, actor }: Event): EventKind[] {
  const [noun] = type.split(".");
  const kind = BY_TYPE[type] ?? (noun === "checkpoint" ? "checkpoints" : noun === "rank" ? "ranks" : "other");
  return actor.kind === "user" ? [kind, "people"] : [kind];
}

/** How many of these events each kind has. */
export function countsByKind(events: readonly Event[]): Record<EventKind, number> {
  const counts = Object.fromEntries(EVENT_KIND_NAMES.map((kind) => [kind, 0])) as Record<EventKind, number>;
  for (const event of events) for (const kind of kindsOf(event)) counts[kind] += 1;
  return counts;
}

export interface Entry {
  event: Event;
  /** What became of it later: of a checkpoint the states that followed. */
  later: readonly Event[];
}

/**
 * Events in the order given, the newest first; those of one checkpoint's states are one entry, at the place of the first.
 * What a person did stays an entry of its own.
 */
export function entriesOf(newestFirst: readonly Event[]): Entry[] {
  const later = new Map<string, Event[]>();
  const entries: Entry[] = [];
  const oldestFirst = newestFirst.toReversed();
  for (const event of oldestFirst) {
    const id = event.actor.kind === "user" ? null : checkpointOf(event);
    const first = id === null ? undefined : later.get(id);
    if (first) {
      first.push(event);
      continue;
    }
    const following: Event[] = [];
    if (id !== null) later.set(id, following);
    entries.push({ event, later: following });
  }
  return entries.reverse();
}

/** The id of the checkpoint whose state the event tells. */
function checkpointOf({ type, data }: Event): string | null {
  const { checkpoint_id: id, state } = (data ?? {}) as { checkpoint_id?: string; state?: string };
  return type.startsWith("checkpoint.") && id !== undefined && state !== undefined ? id : null;
}
