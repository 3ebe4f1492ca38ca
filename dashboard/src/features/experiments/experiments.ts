/** What the dashboard derives from an experiment, in one place. Pure. */
import type { BarPart } from "@/components/ui/StackedBar";
import { plural } from "@/lib/format";
import type {
  Configuration,
  Experiment,
  ExperimentAnalysis,
  ExperimentPlan,
  ExperimentState,
  Trial,
  TrialCounts,
} from "@/lib/types";

export const EXPERIMENT_STATES = ["running", "paused", "completed", "stopped", "cancelled"] as const;
const OVER: readonly ExperimentState[] = ["completed", "cancelled"];

/** No trial will start by itself; a stopped one goes on with a larger budget. */
export function isOver(state: ExperimentState): boolean {
  return OVER.includes(state) || state === "stopped";
}

export function canPause({ state }: Pick<Experiment, "state">): boolean {
  return state === "running";
}

export function canResume({ state }: Pick<Experiment, "state">): boolean {
  return state === "paused";
}

export function canCancel({ state }: Pick<Experiment, "state">): boolean {
  return !OVER.includes(state);
}

/** Trials that came to an end by themselves or were brought to one; refused configurations never run. */
export function ended({ completed, failed, cancelled, pruned }: TrialCounts): number {
  return completed + failed + cancelled + pruned;
}

/** Of each state, in the order of a trial's life; those that wait are the rest of the bar. */
const BAR: readonly { state: Exclude<keyof TrialCounts, "total">; color: string }[] = [
  { state: "completed", color: "--good" },
  { state: "failed", color: "--bad" },
  { state: "pruned", color: "--neutral" },
  { state: "cancelled", color: "--neutral" },
  { state: "running", color: "--accent" },
  { state: "paused", color: "--warn" },
  { state: "waiting", color: "--track" },
];

export function barOf(counts: TrialCounts): BarPart[] {
  return BAR.map(({ state, color }) => ({ name: state, value: counts[state], color })).filter(({ value }) => value > 0);
}

/** In the order of the command line, which says the same; completed ones are told with the total. */
const OTHERS = ["running", "paused", "waiting", "pruned", "refused", "failed", "cancelled"] as const;
/** Those that will not complete. */
const NOT_COMPLETED = ["refused", "failed", "cancelled"] as const;

function listed(counts: TrialCounts, states: readonly (keyof TrialCounts)[]): string[] {
  return states.filter((state) => counts[state] > 0).map((state) => `${counts[state]} ${state}`);
}

/** "3 of 9 completed, 1 running, 5 waiting". */
export function countsInWords(counts: TrialCounts): string {
  return [`${counts.completed} of ${counts.total} completed`, ...listed(counts, OTHERS)].join(", ");
}

/** "1 refused, 2 failed"; empty: none. */
export function notCompletedInWords(counts: TrialCounts): string {
  return listed(counts, NOT_COMPLETED).join(", ");
}

/** What a pause does, and what it costs. */
export function lossOfPausing({ running }: TrialCounts): string {
  if (running === 0) return "No trial runs now. Nothing is lost.";
  return `${plural(running, "running trial")} will save a checkpoint, pause, and free ${running === 1 ? "its" : "their"} slots. Nothing is lost.`;
}

/** What would be lost for good. */
export function lossOfCancelling(counts: TrialCounts): string {
  const cut = counts.running + counts.paused;
  const parts = [
    ...(cut > 0
      ? [`${plural(cut, "trial")} under way will be cancelled, with what ${cut === 1 ? "it has" : "they have"} trained`]
      : []),
    ...(counts.waiting > 0 ? [`${plural(counts.waiting, "trial")} will never start`] : []),
  ];
  const kept = ended(counts);
  const keeps = kept > 0 ? ` The results of ${plural(kept, "trial")} that ended are kept.` : "";
  return `${parts.join("; ") || "No trial is left to run"}.${keeps}`;
}

/** What becomes of the experiment that gets the planned grid; `there` null: nothing is known of it yet. */
export function lossOfReplacing(there: ExperimentPlan["replaces"]): string {
  if (there === null) return "It gets this grid. Trials that the grid lacks are cancelled.";
  const { cancels, created_by: owner } = there;
  const gets = `It belongs to ${owner.name} and gets this grid`;
  if (cancels === 0) return `${gets}. What it has run stays, and no trial is cancelled.`;
  const trained = cancels === 1 ? "is cancelled, with what it has" : "are cancelled, with what they have";
  return `${gets}: ${plural(cancels, "trial")} that the grid lacks ${trained} trained.`;
}

/** How many trials have ended since the analysis was made. */
export function newerTrials(counts: TrialCounts, { analysis }: ExperimentAnalysis): number {
  return Math.max(0, ended(counts) - analysis.ended);
}

const LEAST_BETWEEN_MS = 20_000;

/**
 * Whether a page that is looked at should ask for another analysis: trials have ended that the newest one, if any, has not seen, or it was
 * made before the end of an experiment that is over by now.
 */
export function needsAnalysis(
  { trials, ended_at: end }: Pick<Experiment, "trials" | "ended_at">,
  made: ExperimentAnalysis | null | undefined,
  msSinceRead: number,
): boolean {
  if (made === undefined) return false;
  if (made === null) return ended(trials) > 0;
  const isMadeBeforeTheEnd = end !== null && Date.parse(made.made_at) < Date.parse(end);
  return (newerTrials(trials, made) > 0 || isMadeBeforeTheEnd) && msSinceRead >= LEAST_BETWEEN_MS;
}

/** Those whose name, figures and jobs a table of configurations links to. */
export function jobsOf(configuration: Configuration, trials: readonly Trial[]): { index: number; jobId: string }[] {
  return configuration.trials.flatMap((index) => {
    const job = trials.find((trial) => trial.index === index)?.job;
    return job ? [{ index, jobId: job.id }] : [];
  });
}
