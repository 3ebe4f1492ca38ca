import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { ApiError, asApiError } from "@/lib/errors";
import { etag } from "@/lib/jobs";
import { keys } from "@/lib/keys";
import type { Job, JobEdit, JobSummary } from "@/lib/types";

const AT_ONCE = 6;

/** One thing that is done to each of several jobs. */
export type JobChange =
  | { kind: "cancel" | "archive" | "unarchive" }
  | { kind: "edit"; edit: JobEdit }
  | { kind: "delete"; checkpoints: boolean };

async function send(id: string, change: JobChange): Promise<unknown> {
  const params = { path: { job_id: id } };
  switch (change.kind) {
    case "cancel":
      return unwrap(api.DELETE("/api/v1/training/jobs/{job_id}", { params }));
    case "archive":
      return unwrap(api.PUT("/api/v1/training/jobs/{job_id}/archive", { params }));
    case "unarchive":
      return unwrap(api.PUT("/api/v1/training/jobs/{job_id}/unarchive", { params }));
    case "edit":
      return unwrap(api.PATCH("/api/v1/training/jobs/{job_id}", { params, body: change.edit }));
    case "delete": {
      const query = { checkpoints: change.checkpoints };
      await unwrap(api.DELETE("/api/v1/training/jobs/{job_id}/data", { params: { ...params, query } }));
      return send(id, { kind: "archive" });
    }
  }
}

/** Why one of several jobs was left as it is. */
export interface Refusal {
  job: Pick<JobSummary, "id" | "name">;
  message: string;
}

/** Do the same to several jobs, a few at once. Answers with those that the coordinator refused; others are done all the same. */
export function useJobChanges() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ jobs, change }: { jobs: readonly Refusal["job"][]; change: JobChange }) => {
      const left = [...jobs];
      const refusals: Refusal[] = [];
      const work = async () => {
        for (let job = left.shift(); job; job = left.shift())
          await send(job.id, change).catch((error: unknown) =>
            refusals.push({ job: job!, message: asApiError(error).message }),
          );
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
      return refusals;
    },
    onSettled: () => Promise.all([keys.jobs, keys.jobFacets].map((queryKey) => client.invalidateQueries({ queryKey }))),
  });
}

function sendEdit(id: string, edit: JobEdit, revision?: string): Promise<Job> {
  const params = { path: { job_id: id }, header: revision === undefined ? {} : { "If-Match": revision } };
  return unwrap(api.PATCH("/api/v1/training/jobs/{job_id}", { params, body: edit }));
}

/** Notes are one text, which a second writer would replace: sends them for the revision that the page shows, or for a newer one with the same notes. */
async function sendNotes(job: Job, edit: JobEdit): Promise<Job> {
  try {
    return await sendEdit(job.id, edit, etag(job));
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 412)) throw error;
    const fresh = await unwrap(api.GET("/api/v1/training/jobs/{job_id}", { params: { path: { job_id: job.id } } }));
    if (fresh.notes !== job.notes) throw error;
    return sendEdit(fresh.id, edit, etag(fresh));
  }
}

/** Change one job, of which the page shows the newest state. */
export function useJobEdit(job: Job) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (edit: JobEdit) => (edit.notes === undefined ? sendEdit(job.id, edit) : sendNotes(job, edit)),
    onSuccess: (changed) => client.setQueryData(keys.job(changed.id), changed),
    onSettled: () => client.invalidateQueries({ queryKey: keys.jobs }),
  });
}
