/** What the dashboard derives from a job, in one place. */
import type { Job, JobProgress, JobState, JobSummary } from "./types";

export const JOB_STATES: readonly JobState[] = [
  "queued", "starting", "running", "recovering", "resizing", "stopping", "paused", "completed", "failed", "cancelled",
];
const TERMINAL: ReadonlySet<JobState> = new Set(["completed", "failed", "cancelled"]);

export function isTerminal(state: JobState): boolean {
  return TERMINAL.has(state);
}

/** A script cannot be asked to save, so the coordinator refuses to pause it. */
export function canPause(job: JobSummary): boolean {
  return job.strategy !== "script" && job.desired === "run" && !isTerminal(job.state) && job.state !== "stopping" && job.state !== "paused";
}

export function canResume(job: JobSummary): boolean {
  return job.state === "paused" || (job.desired === "pause" && !isTerminal(job.state));
}

/** A script decides by itself what its ranks do, and `single` is one process. */
export function canResize(job: JobSummary): boolean {
  return job.strategy !== "script" && job.strategy !== "single" && !isTerminal(job.state) && job.desired !== "cancel";
}

export function canCancel(job: JobSummary): boolean {
  return !isTerminal(job.state) && job.desired !== "cancel";
}

/** "1 of 2": a gang that has fewer ranks than it should have, or null. */
export function smallWorld({ state, actual_world_size: actual, world_size: world }: Job): string | null {
  return !isTerminal(state) && actual != null && actual < world ? `${actual} of ${world}` : null;
}

/** The share done, or null where the total is unknown. */
export function shareDone(progress: JobProgress): number | null {
  return progress.total_steps ? Math.min(1, progress.step / progress.total_steps) : null;
}

/** The colour of a progress bar: how it ended, or that it goes on. */
export function progressTone(state: JobState): "active" | "good" | "bad" | "neutral" {
  if (state === "completed") return "good";
  if (state === "failed") return "bad";
  return state === "cancelled" ? "neutral" : "active";
}

/** What would be lost if the ranks stopped now without saving. */
export function lossOfStopping({ strategy, progress }: Pick<Job, "strategy" | "progress">): string {
  const saved = progress.last_checkpoint_step;
  if (strategy === "script" && progress.step === 0) return "What the script has not saved itself is lost.";
  if (progress.step === 0) return "It has not trained a step yet.";
  if (saved == null) return `All ${progress.step} steps are lost: there is no checkpoint.`;
  const lost = progress.step - saved;
  if (lost <= 0) return `Nothing is lost: step ${saved} is saved.`;
  return `${lost} ${lost === 1 ? "step" : "steps"} since the last checkpoint (step ${saved}) will be lost.`;
}

export function etag(job: Pick<Job, "revision">): string {
  return `"${job.revision}"`;
}
