/** What stands in the URL of each page, parsed once; anything malformed is dropped. */
import type { CheckpointFilter } from "@/features/checkpoints/api/checkpoints";
import { SORTS, type JobListView, type Sort } from "@/features/jobs/api/jobs";
import { SORTS as EXPERIMENT_SORTS, type ExperimentFilter } from "@/features/experiments/api/experiments";
import type { ResultsView } from "@/features/experiments/components/Results";
import { COMPARED_BY } from "@/features/experiments/comparisons";
import { EXPERIMENT_STATES } from "@/features/experiments/experiments";
import { LOSS_AXES } from "@/features/experiments/losses";
import { LEVELS, type Level } from "@/features/logs/api/logs";
import type { HistoryView } from "@/features/metrics/components/NodeHistory";
import { CARD_READINGS, WINDOWS, type CardReading, type Window } from "@/features/metrics/readings";
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
  /** The reading of the cards that is shown. */
  card?: CardReading;
  /** The step whose gradients are shown. */
  gradientStep?: number;
}

export interface ClusterSearch extends HistoryView {
  add?: boolean;
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

export const EXPERIMENT_TABS = ["results", "trials", "spec"] as const;

export interface ExperimentSearch extends ResultsView {
  tab?: (typeof EXPERIMENT_TABS)[number];
}

export interface NewExperimentSearch {
  view?: "form" | "yaml";
  template?: string;
  /** A job whose spec is the base. */
  from?: string;
  /** An experiment whose spec is where to begin. */
  again?: string;
}

export interface LoginSearch {
  token?: string;
  next?: string;
}

export function checkpointsSearch(raw: Raw): CheckpointFilter {
  return { q: text(raw.q), cursor: text(raw.cursor) };
}

function text(value: unknown): string | undefined {
  return value === undefined || value === null || value === "" ? undefined : String(value);
}

function trueOrFalse(value: unknown): boolean | undefined {
  return value === true || value === "true" ? true : value === false || value === "false" ? false : undefined;
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
    experiment: text(raw.experiment),
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
    card: oneOf(raw.card, CARD_READINGS),
    gradientStep: whole(raw.gradientStep),
  };
}

export function clusterSearch(raw: Raw): ClusterSearch {
  return {
    add: raw.add === true || raw.add === "true" || undefined,
    node: text(raw.node),
    metric: text(raw.metric),
    window: oneOf(raw.window, Object.keys(WINDOWS) as Window[]),
  };
}

export function compareSearch(raw: Raw): CompareSearch {
  return { jobs: names(raw.jobs), metric: text(raw.metric) };
}

export function submitSearch(raw: Raw): SubmitSearch {
  return { view: oneOf(raw.view, ["form", "yaml"] as const), template: text(raw.template), from: text(raw.from) };
}

export function experimentsSearch(raw: Raw): ExperimentFilter {
  const wanted = String(raw.status ?? "").split(",");
  const status = EXPERIMENT_STATES.filter((state) => wanted.includes(state));
  return {
    status: status.length ? status : undefined,
    project: text(raw.project),
    q: text(raw.q),
    sort: oneOf(raw.sort, EXPERIMENT_SORTS),
    cursor: text(raw.cursor),
  };
}

export function experimentSearch(raw: Raw): ExperimentSearch {
  return {
    tab: oneOf(raw.tab, EXPERIMENT_TABS),
    by: oneOf(raw.by, LOSS_AXES),
    log: trueOrFalse(raw.log),
    across: text(raw.across),
    down: text(raw.down),
    figure: text(raw.figure),
    fit: text(raw.fit),
    compare: oneOf(raw.compare, COMPARED_BY),
    compared: text(raw.compared),
  };
}

export function newExperimentSearch(raw: Raw): NewExperimentSearch {
  return {
    view: oneOf(raw.view, ["form", "yaml"] as const),
    template: text(raw.template),
    from: text(raw.from),
    again: text(raw.again),
  };
}

/** `next` stays on this site: a path, never another origin. */
export function loginSearch(raw: Raw): LoginSearch {
  const next = text(raw.next);
  return { token: text(raw.token), next: next?.startsWith("/") && !next.startsWith("//") ? next : undefined };
}
