/** What stands in the URL of each page, parsed once; anything malformed is dropped. */
import { SORTS, type JobFilter, type Sort } from "@/features/jobs/api/jobs";
import { LEVELS, type Level } from "@/features/logs/api/logs";
import { JOB_STATES } from "@/lib/jobs";
import type { JobState } from "@/lib/types";

type Raw = Record<string, unknown>;

export const TABS = ["curves", "logs", "ranks", "checkpoints", "timeline", "spec"] as const;
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

export function jobsSearch(raw: Raw): JobFilter {
  const status = String(raw.status ?? "").split(",").filter((state): state is JobState => JOB_STATES.includes(state as JobState));
  return { status: status.length ? status : undefined, q: text(raw.q), sort: oneOf<Sort>(raw.sort, SORTS), cursor: text(raw.cursor) };
}

export function jobSearch(raw: Raw): JobSearch {
  const smooth = Number(raw.smooth);
  return {
    tab: oneOf(raw.tab, TABS), from: whole(raw.from), to: whole(raw.to), log: raw.log === true || raw.log === "true" || undefined,
    smooth: smooth > 0 && smooth < 1 ? smooth : undefined, rank: whole(raw.rank) || undefined, logRank: whole(raw.logRank),
    level: oneOf<Level>(raw.level, LEVELS), q: text(raw.q), line: whole(raw.line),
  };
}

export function submitSearch(raw: Raw): SubmitSearch {
  return { view: oneOf(raw.view, ["form", "yaml"] as const), template: text(raw.template), from: text(raw.from) };
}

/** `next` stays on this site: a path, never another origin. */
export function loginSearch(raw: Raw): LoginSearch {
  const next = text(raw.next);
  return { token: text(raw.token), next: next?.startsWith("/") && !next.startsWith("//") ? next : undefined };
}
