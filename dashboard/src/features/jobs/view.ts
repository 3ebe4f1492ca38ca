/** What the list of jobs shows: filters, order and columns. All of it stands in the page's address, and under the names of saved views. */
import type { JobState } from "@/lib/types";

export const SORTS = ["-created_at", "created_at", "name", "-name", "priority", "-priority"] as const;
export type Sort = (typeof SORTS)[number];

export const COLUMNS = {
  progress: "Progress",
  loss: "Loss",
  best_loss: "Best loss",
  eval_loss: "Eval loss",
  best_eval_loss: "Best eval loss",
  throughput: "Throughput",
  duration: "Duration",
  eta: "ETA",
  ranks: "Ranks",
  restarts: "Restarts",
  user: "User",
  project: "Project",
  model: "Model",
  labels: "Labels",
  priority: "Priority",
  created: "Submitted",
  ended: "Ended",
} as const;
export type ColumnId = keyof typeof COLUMNS;
export const COLUMN_IDS = Object.keys(COLUMNS) as ColumnId[];
export const FIRST_COLUMNS: readonly ColumnId[] = [
  "progress",
  "loss",
  "throughput",
  "duration",
  "eta",
  "ranks",
  "user",
  "created",
];

/** Those of these columns that there are, in the order of the table; undefined where there are none. */
export function knownColumns(wanted: readonly string[] | null | undefined): ColumnId[] | undefined {
  return orNone(COLUMN_IDS.filter((id) => wanted?.includes(id)));
}

/** Ages that can be chosen; an address may have a date in their place. */
export const AGES = {
  "1d": "Last 24 hours",
  "7d": "Last 7 days",
  "30d": "Last 30 days",
  "90d": "Last 90 days",
} as const;
export const ARCHIVED = { include: "With archived jobs", only: "Archived jobs only" } as const;
export type Archived = keyof typeof ARCHIVED;
export const TRIALS = { exclude: "Without trials", only: "Trials only" } as const;
export type Trials = keyof typeof TRIALS;

export interface JobFilter {
  status?: JobState[];
  project?: string[];
  user?: string[];
  model?: string[];
  /** Each as KEY=VALUE. */
  label?: string[];
  q?: string;
  /** An age as 7d, or a date. */
  since?: string;
  /** The id or name of the experiment whose trials are shown. */
  experiment?: string;
  /** Whether trials of experiments are among them; left out: they are. */
  trials?: Trials;
  archived?: Archived;
  sort?: Sort;
  cursor?: string;
}

/** What stands in the list's address. */
export interface JobListView extends JobFilter {
  columns?: ColumnId[];
  /** Jobs that are selected. */
  pick?: string[];
}

/** The parts of a filter that limit the list, each with what it is called. */
const LIMITS = {
  status: "State",
  project: "Project",
  user: "User",
  model: "Model",
  label: "Label",
  q: "Search",
  since: "Submitted",
  experiment: "Experiment",
  trials: "Trials of experiments",
  archived: "Archive",
} as const;
export const NO_LIMITS = Object.fromEntries(Object.keys(LIMITS).map((name) => [name, undefined])) as Partial<JobFilter>;

export function isLimited(filter: JobFilter): boolean {
  return Object.keys(LIMITS).some((name) => filter[name as keyof JobFilter] !== undefined);
}

export interface Chip {
  name: string;
  value: string;
  /** The filter without it. */
  rest: Partial<JobFilter>;
}

const LISTED = ["project", "user", "model", "label"] as const;

/** The filters that no control of the bar shows, one by one. */
export function chipsOf(filter: JobFilter): Chip[] {
  const chips: Chip[] = LISTED.flatMap((part) =>
    (filter[part] ?? []).map((value) => ({
      name: LIMITS[part],
      value,
      rest: { [part]: orNone((filter[part] ?? []).filter((other) => other !== value)) },
    })),
  );
  if (filter.since) chips.push({ name: LIMITS.since, value: sinceInWords(filter.since), rest: { since: undefined } });
  if (filter.trials) chips.push({ name: LIMITS.trials, value: TRIALS[filter.trials], rest: { trials: undefined } });
  if (filter.archived)
    chips.push({ name: LIMITS.archived, value: ARCHIVED[filter.archived], rest: { archived: undefined } });
  return chips;
}

export function sinceInWords(since: string): string {
  return since in AGES ? AGES[since as keyof typeof AGES].toLowerCase() : `since ${since}`;
}

const DAY_MS = 86_400_000;

/** The time that an age or a date names, as the API reads it; undefined where it names none. */
export function timeOf(since: string | undefined, now: number): string | undefined {
  const days = /^(\d{1,4})d$/.exec(since ?? "")?.[1];
  const time = days === undefined ? Date.parse(since ?? "") : now - Number(days) * DAY_MS;
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}

export function orNone<T>(values: readonly T[]): T[] | undefined {
  return values.length > 0 ? [...values] : undefined;
}

/** A view as a query string, without what is of the moment: the page and the selection. */
export function queryOf(view: JobListView): string {
  const lasting = { ...view, cursor: undefined, pick: undefined };
  const set = Object.entries(lasting).filter(([, value]) => value !== undefined);
  return new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString();
}
