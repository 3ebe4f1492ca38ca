/** Who may destroy what of a job. The coordinator decides; this only says it before a button is pressed. */
import { useQueryClient } from "@tanstack/react-query";
import { keys } from "./keys";
import type { JobSummary, Me } from "./types";

const VIEWER = "Your role is viewer: only members and admins may do this.";

type Owned = Pick<JobSummary, "created_by" | "created_by_id">;

/** Why the coordinator would refuse to cancel this job or to delete or unpin what it left; null where it would not. */
export function refusal(me: Me | null | undefined, job: Owned, noun = "job"): string | null {
  if (me == null || me.role === "admin") return null;
  if (me.role === "viewer") return VIEWER;
  if (me.members_may === "all" || job.created_by_id === me.user_id) return null;
  return `This is ${job.created_by}'s ${noun}: only ${job.created_by} or an admin may do this.`;
}

export function useRefusal(job: Owned, noun?: string): string | null {
  return refusal(useQueryClient().getQueryData<Me | null>(keys.me), job, noun);
}

/** Why the coordinator would refuse whatever changes something; null where it would not. */
export function useViewerRefusal(): string | null {
  return useQueryClient().getQueryData<Me | null>(keys.me)?.role === "viewer" ? VIEWER : null;
}
