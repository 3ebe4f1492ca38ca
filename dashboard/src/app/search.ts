/** What stands in the URL of each page, parsed once; anything malformed is dropped. */
import { SORTS, type JobListView, type Sort } from "@/features/jobs/api/jobs";
import { LEVELS, type Level } from "@/features/logs/api/logs";
import { JOB_STATES } from "@/lib/jobs";
import type { JobState } from "@/lib/types";

type Raw = Record<string, unknown>;

export const TABS = ["curves", "performance", "incidents", "logs", "ranks", "checkpoints", "timeline", "spec"] as const;
export type Tab = (typeof TABS)[number];

export interface JobSearch {
  tab?: Tab;
  from?: number;
  to?: number;
  log?: boolean;
  smooth?: number;
  rank?: number;
  logRank?: number;
  level?: Level;
  q?: string;
  line?: number;
}

export interface CompareSearch {
  /** Each is compared with the first one. */
  jobs?: string[];
  metric?: string;
}

/** As many as there are colours to tell them apart. */
export const MOST_COMPARED = 6;

export interface SubmitSearch {
  view?: "form" | "yaml";
  template?: string;
  from?: string;
}

export interface LoginSearch {
  token?: string;
  next?: string;
}

function text(value: unknown): string | undefined {
  return value === undefined || value === null || value === "" ? undefined : String(value);
}

function whole(value: unknown): number | undefined {
  const number = Number(value);
  return value !== undefined && value !== "" && Number.isInteger(number) && number >= 0 ? number : undefined;
}

function oneOf<T extends string>(value: unknown, choices: readonly T[]): T | undefined {
  return choices.find((choice) => choice === value);
}

/** Names in a list or, as one would write it by hand, between commas; each once. */
function names(value: unknown): string[] | undefined {
  const found = [
    ...new Set(
      String(value ?? "")
        .split(",")
        .map((name) => name.trim())
        .filter((name) => name !== ""),
    ),
  ];
  return found.length > 0 ? found.slice(0, MOST_COMPARED) : undefined;
}

export function jobsSearch(raw: Raw): JobListView {
  const status = String(raw.status ?? "")
    .split(",")
    .filter((state): state is JobState => JOB_STATES.includes(state as JobState));
  return {
    status: status.length ? status : undefined,
    q: text(raw.q),
    sort: oneOf<Sort>(raw.sort, SORTS),
    cursor: text(raw.cursor),
    pick: names(raw.pick),
  };
}

export function jobSearch(raw: Raw): JobSearch {
  const smooth = Number(raw.smooth);
  return {
    tab: oneOf(raw.tab, TABS),
    from: whole(raw.from),
    to: whole(raw.to),
    log: raw.log === true || raw.log === "true" || undefined,
    smooth: smooth > 0 && smooth < 1 ? smooth : undefined,
    rank: whole(raw.rank) || undefined,
    logRank: whole(raw.logRank),
    level: oneOf<Level>(raw.level, LEVELS),
    q: text(raw.q),
    line: whole(raw.line),
  };
}

export function compareSearch(raw: Raw): CompareSearch {
  return { jobs: names(raw.jobs), metric: text(raw.metric) };
}

export function submitSearch(raw: Raw): SubmitSearch {
  return { view: oneOf(raw.view, ["form", "yaml"] as const), template: text(raw.template), from: text(raw.from) };
}

/** `next` stays on this site: a path, never another origin. */
export function loginSearch(raw: Raw): LoginSearch {
  const next = text(raw.next);
  return { token: text(raw.token), next: next?.startsWith("/") && !next.startsWith("//") ? next : undefined };
}
