import { isTerminal } from "@/lib/jobs";
import type { JobState } from "@/lib/types";

/** Why a job cannot be set back to a checkpoint of its own now; null if it can. */
export function atWork(name: string, state: JobState, dataRemoved: boolean): string | null {
  if (dataRemoved) return `What ${name} recorded was deleted.`;
  return state === "paused" || isTerminal(state) ? null : `${name} is ${state}: pause it first.`;
}
