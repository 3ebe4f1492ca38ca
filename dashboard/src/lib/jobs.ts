/** What the dashboard derives from a job, in one place. */
import { TERMINAL_JOB_STATES } from "./constants.generated";
import { dateTime, wholePercents } from "./format";
import type { Job, JobProgress, JobState, JobSummary } from "./types";

export { JOB_STATES } from "./constants.generated";

export function isTerminal(state: JobState): boolean {
  return TERMINAL_JOB_STATES.includes(state);
}

/** When a job began, in seconds since the epoch; of one that waits, when it was submitted. */
export function startOf({ started_at: started, created_at: created }: Job): number {
  return Date.parse(started ?? created) / 1000;
}

/** How many ranks the job has had at most, or is to have: a smaller world leaves logs and curves of ranks that are gone. */
export function mostRanks({ world_size: now, generations }: Pick<Job, "world_size" | "generations">): number {
  return Math.max(now, ...generations.map(({ world_size: then }) => then));
}

/** Ranks to choose from, the chosen one in any case. */
export function ranksToChoose(most: number, chosen: number | undefined): number[] {
  const ranks = Array.from({ length: most }, (_, rank) => rank);
  return chosen === undefined || chosen < most ? ranks : [...ranks, chosen];
}

/** "No curves yet", and of an ended job "No curves": there will be none. */
export function soFar(words: string, live: boolean): string {
  return live ? `${words} yet` : words;
}

/** A job that stops for other slots, or for another size: it goes back to the queue, where it can be held. */
const goesBackToQueue = (job: JobSummary) => job.end_reason === "preempted" || job.end_reason === "resized";

/** A script that does not say that it saves cannot be paused: the coordinator knows. */
export function canPause(job: JobSummary): boolean {
  return (
    job.can_pause &&
    job.desired === "run" &&
    !isTerminal(job.state) &&
    job.state !== "paused" &&
    (job.state !== "stopping" || goesBackToQueue(job))
  );
}

export function canResume(job: JobSummary): boolean {
  return job.state === "paused" || (job.desired === "pause" && !isTerminal(job.state));
}

/** `single` is one process, and a script has one size unless it says otherwise: the coordinator knows. */
export function canResize(job: JobSummary): boolean {
  return job.can_resize && !isTerminal(job.state) && job.desired !== "cancel";
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

/** The share done in words, rounded down: 100% is said only when every step is done. */
export function percentDone(progress: JobProgress): string | undefined {
  const share = shareDone(progress);
  return share === null ? undefined : `${wholePercents(share)}%`;
}

/** How far a progress bar goes: all the way once a job is completed, whatever its total was; null: there is none. */
export function shareOfBar({ state, progress }: Pick<Job, "state" | "progress">): number | null {
  return shareDone(progress) ?? (state === "completed" ? 1 : null);
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
  if (strategy === "script") return lossOfScript(progress);
  if (progress.step === 0) return "The job has not trained a step yet.";
  if (saved == null) return `All ${progress.step} steps will be lost: there is no checkpoint.`;
  const lost = progress.step - saved;
  if (lost <= 0) return `Nothing will be lost: step ${saved} is saved.`;
  return `${lost} ${lost === 1 ? "step" : "steps"} since the last checkpoint (step ${saved}) will be lost.`;
}

/** A script saves by itself: what it has not saved is unknown. */
function lossOfScript(progress: JobProgress): string {
  return `Whatever the script has not saved itself will be lost.${newestSeen(progress)}`;
}

/** A sentence about the newest file of a script that looks like a checkpoint, after a space; nothing where none was seen. */
export function newestSeen({ saved_file: saved }: JobProgress): string {
  return saved ? ` The newest checkpoint found is ${fileName(saved.path)}, of ${dateTime(saved.time)}.` : "";
}

export function fileName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

export function etag(job: Pick<Job, "revision">): string {
  return `"${job.revision}"`;
}
