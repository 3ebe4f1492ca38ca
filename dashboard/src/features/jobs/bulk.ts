/** What can be done to several jobs at once, to which of them, and in which words. */
import { canCancel, isTerminal } from "@/lib/jobs";
import { plural } from "@/lib/format";
import { refusal } from "@/lib/ownership";
import type { Job, Me } from "@/lib/types";
import type { Refusal } from "./api/edits";

export type Bulk = "label" | "archive" | "unarchive" | "cancel" | "delete";

type Title = (count: number) => string;

export const TITLES: Record<Bulk, Title> = {
  label: (count) => `Label or move ${plural(count, "job")}`,
  archive: (count) => `Archive ${plural(count, "job")}?`,
  unarchive: (count) => `Unarchive ${plural(count, "job")}?`,
  cancel: (count) => `Cancel ${plural(count, "job")}?`,
  delete: (count) => `Delete the data of ${plural(count, "job")}?`,
};

export const DONE: Record<Bulk, string> = {
  label: "Apply",
  archive: "Archive",
  unarchive: "Unarchive",
  cancel: "Cancel jobs",
  delete: "Delete data",
};

export const WARNINGS: Record<Bulk, string> = {
  label: "",
  archive: "Archived jobs are left out of the list. Nothing of them is deleted.",
  unarchive: "",
  cancel:
    "Their ranks are stopped and their slots are freed. A cancelled job cannot be resumed, and loses its steps since the last checkpoint.",
  delete:
    "Their points, curves, log lines, traces, gradients, media and files are deleted for good, and the jobs are archived. Specs, history and how they ended stay.",
};

/** Why a job cannot be changed like this; null where it can. */
function problem(bulk: Bulk, job: Job, me: Me | null | undefined): string | null {
  switch (bulk) {
    case "label":
      return null;
    case "archive":
      if (!isTerminal(job.state)) return `It is ${job.state}. Only ended jobs can be archived.`;
      return job.archived_at ? "It is archived already." : null;
    case "unarchive":
      return job.archived_at ? null : "It is not archived.";
    case "cancel":
      if (canCancel(job)) return refusal(me, job);
      return isTerminal(job.state) ? `It has ended: ${job.state}.` : "It is being cancelled already.";
    case "delete":
      return isTerminal(job.state) ? refusal(me, job) : `It is ${job.state}. Only ended jobs have their data deleted.`;
  }
}

export function partition(bulk: Bulk, jobs: readonly Job[], me: Me | null | undefined) {
  const problems = jobs.map((job) => ({ job, message: problem(bulk, job, me) }));
  return {
    fit: problems.flatMap(({ job, message }) => (message === null ? [job] : [])),
    unfit: problems.filter((each): each is { job: Job } & Refusal => each.message !== null),
  };
}
