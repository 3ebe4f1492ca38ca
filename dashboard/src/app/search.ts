/** What stands in the URL of each page, parsed once; anything malformed is dropped. */
import type { CheckpointFilter } from "@/features/checkpoints/api/checkpoints";
import {
  ARCHIVED,
  TRIALS,
  knownColumns,
  SORTS,
  timeOf,
  type Archived,
  type Trials,
  type JobListView,
  type Sort,
} from "@/features/jobs/view";
import type { NodesView } from "@/features/cluster/components/NodesTable";
import { EVENT_KIND_NAMES, type EventKind } from "@/features/events/kinds";
import { SORTS as EXPERIMENT_SORTS, type ExperimentFilter } from "@/features/experiments/api/experiments";
import type { ResultsView } from "@/features/experiments/components/Results";
import { COMPARED_BY } from "@/features/experiments/comparisons";
import { EXPERIMENT_STATES } from "@/features/experiments/experiments";
import { LOSS_AXES } from "@/features/experiments/losses";
import { CONTEXTS, LEVELS, type Level } from "@/features/logs/api/logs";
import { AXES, type Axis } from "@/features/metrics/axes";
import type { HistoryView } from "@/features/metrics/components/NodeHistory";
import { LINES, type Lines } from "@/features/metrics/rankLines";
import { CARD_READINGS, WINDOWS, type CardReading, type Window } from "@/features/metrics/readings";
import { SMOOTHINGS, smoothingOf, type SmoothingKind } from "@/features/metrics/smoothing";
import type { AuditFilter } from "@/features/people/api/people";
import { JOB_STATES } from "@/lib/jobs";
import type { JobState } from "@/lib/types";
import { labels, names, oneOf, text, trueOrFalse, whole } from "./searchValues";

type Raw = Record<string, unknown>;

export const TABS = [
  "curves",
  "media",
  "performance",
  "incidents",
  "logs",
  "ranks",
  "terminal",
  "checkpoints",
  "artifacts",
  "timeline",
  "spec",
] as const;
export type Tab = (typeof TABS)[number];

/** How charts are drawn, and which steps they show. */
interface DrawSearch {
  from?: number;
  to?: number;
  axis?: Axis;
  log?: boolean;
  smooth?: number;
  smoothing?: SmoothingKind;
}

export interface JobSearch extends DrawSearch {
  tab?: Tab;
  rank?: number;
  logRank?: number;
  level?: Level;
  q?: string;
  regex?: boolean;
  context?: number;
  line?: number;
  /** The reading of the cards that is shown. */
  card?: CardReading;
  /** The step whose gradients are shown. */
  gradientStep?: number;
  /** The metric by which the heat map compares ranks, and which of them have a line beneath it. */
  measure?: string;
  lines?: Lines;
  /** The kind of events that the timeline shows. */
  events?: EventKind;
  /** The folder of files that is shown. */
  folder?: string;
  /** The step whose images, histograms and tables are shown. */
  mediaStep?: number;
}

/** What a model version is to be made of: it opens the dialog that registers one. */
export interface ModelsSearch {
  checkpoint?: string;
  job?: string;
  path?: string;
}

export interface ClusterSearch extends HistoryView, NodesView {
  add?: boolean;
}

export interface CompareSearch extends DrawSearch {
  mediaStep?: number;
  /** Ids or names. Each is compared with the first one. */
  jobs?: string[];
  metrics?: string[];
}

/** As many as there are colours to tell them apart. */
export const MOST_COMPARED = 6;
const MOST_CHARTS = 12;

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

export const PEOPLE_TABS = ["users", "keys", "sessions", "secrets", "audit"] as const;

export interface PeopleSearch extends AuditFilter {
  tab?: (typeof PEOPLE_TABS)[number];
}

export interface NotificationsSearch {
  /** The id of a channel, of which alone the history is shown. */
  channel?: string;
}

export interface LoginSearch {
  token?: string;
  /** Why the provider signed nobody in: a code of the coordinator. */
  refused?: string;
  /** The session ended by itself: it expired, or was taken away. */
  ended?: boolean;
  next?: string;
}

export function checkpointsSearch(raw: Raw): CheckpointFilter {
  return { q: text(raw.q), cursor: text(raw.cursor) };
}

export function jobsSearch(raw: Raw): JobListView {
  const status = String(raw.status ?? "")
    .split(",")
    .filter((state): state is JobState => JOB_STATES.includes(state as JobState));
  return {
    status: status.length ? status : undefined,
    project: names(raw.project),
    user: names(raw.user),
    model: names(raw.model),
    label: labels(raw.label),
    q: text(raw.q),
    since: timeOf(text(raw.since), 0) === undefined ? undefined : text(raw.since),
    experiment: text(raw.experiment),
    trials: oneOf(raw.trials, Object.keys(TRIALS) as Trials[]),
    archived: oneOf(raw.archived, Object.keys(ARCHIVED) as Archived[]),
    sort: oneOf<Sort>(raw.sort, SORTS),
    cursor: text(raw.cursor),
    columns: knownColumns(names(raw.columns)),
    pick: names(raw.pick),
  };
}

function drawSearch(raw: Raw): DrawSearch {
  const kind = oneOf(raw.smoothing, SMOOTHINGS);
  const smoothing = smoothingOf(kind, Number(raw.smooth));
  return {
    from: whole(raw.from),
    to: whole(raw.to),
    axis: oneOf(raw.axis, AXES),
    log: raw.log === true || raw.log === "true" || undefined,
    smooth: smoothing?.amount,
    smoothing: smoothing ? kind : undefined,
  };
}

export function jobSearch(raw: Raw): JobSearch {
  return {
    ...drawSearch(raw),
    tab: oneOf(raw.tab, TABS),
    rank: whole(raw.rank) || undefined,
    logRank: whole(raw.logRank),
    level: oneOf<Level>(raw.level, LEVELS),
    q: text(raw.q),
    regex: trueOrFalse(raw.regex) || undefined,
    context: CONTEXTS.find((lines) => lines === Number(raw.context)),
    line: whole(raw.line),
    card: oneOf(raw.card, CARD_READINGS),
    gradientStep: whole(raw.gradientStep),
    measure: text(raw.measure),
    lines: oneOf(raw.lines, LINES),
    events: oneOf(raw.events, EVENT_KIND_NAMES),
    folder: text(raw.folder),
    mediaStep: whole(raw.mediaStep),
  };
}

export function modelsSearch(raw: Raw): ModelsSearch {
  return { checkpoint: text(raw.checkpoint), job: text(raw.job), path: text(raw.path) };
}

export function clusterSearch(raw: Raw): ClusterSearch {
  return {
    add: raw.add === true || raw.add === "true" || undefined,
    node: text(raw.node),
    metric: text(raw.metric),
    window: oneOf(raw.window, Object.keys(WINDOWS) as Window[]),
    find: text(raw.find),
    state: text(raw.state),
    card: text(raw.card),
  };
}

export function compareSearch(raw: Raw): CompareSearch {
  return {
    ...drawSearch(raw),
    jobs: names(raw.jobs, MOST_COMPARED),
    metrics: names(raw.metrics, MOST_CHARTS),
    mediaStep: whole(raw.mediaStep),
  };
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

export function peopleSearch(raw: Raw): PeopleSearch {
  return { tab: oneOf(raw.tab, PEOPLE_TABS), user: text(raw.user), action: text(raw.action) };
}

export function notificationsSearch(raw: Raw): NotificationsSearch {
  return { channel: text(raw.channel) };
}

/** `next` stays on this site: a path, never another origin. */
export function loginSearch(raw: Raw): LoginSearch {
  const next = text(raw.next);
  return {
    token: text(raw.token),
    refused: text(raw.refused),
    ended: trueOrFalse(raw.ended) || undefined,
    next: next?.startsWith("/") && !next.startsWith("//") ? next : undefined,
  };
}
