/** Generated from the coordinator's code by `python -m paceline.api.constants`; never edited. */
import type { JobState } from "./types";

export const JOB_STATES: readonly JobState[] = [
  "queued",
  "starting",
  "running",
  "recovering",
  "resizing",
  "stopping",
  "paused",
  "completed",
  "failed",
  "cancelled",
];

export const TERMINAL_JOB_STATES: readonly JobState[] = [
  "completed",
  "failed",
  "cancelled",
];

/** How a rank ended, by the kind of its failure. */
export const FAILURE_WORDS: Readonly<Record<string, string>> = {
  out_of_memory: "ran out of memory",
  peer_lost: "lost the connection to another rank",
  node_lost: "was lost with its node",
  node_removed: "ended with its node",
  hang: "stopped making progress",
  start_timeout: "did not start in time",
  stop_timeout: "did not stop in time",
  checkpoint_failed: "could not save or restore a checkpoint",
  invalid_input: "has an invalid configuration",
  loss_not_finite: "has a loss that is not finite",
  loss_spike: "has a spike of the loss",
  rolled_back: "goes back to the newest checkpoint because of its loss",
};

/** The compressions that a field of `communication` is for; a field that is not here is for all. */
export const OF_COMPRESSION: Readonly<Record<string, readonly string[]>> = {
  ratio: ["top_k"],
  threshold: ["top_k"],
  rank: ["power_sgd"],
  dense_steps: ["top_k", "power_sgd"],
  exclude: ["top_k", "power_sgd"],
};

/** How the name of a saved view is spelled: for machines, and in words. */
export const VIEW_NAME = { pattern: "^(?!\\.+$)[^\\x00-\\x1f\\x7f-\\x9f/\\\\]{1,64}$", rule: "1 to 64 characters; no '/', no '\\', no control characters, not only dots" };
