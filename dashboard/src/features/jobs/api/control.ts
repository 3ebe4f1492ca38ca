import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { ApiError } from "@/lib/errors";
import { canCancel, canPause, canResume, etag } from "@/lib/jobs";
import { keys } from "@/lib/keys";
import type { Job } from "@/lib/types";

export type Control = "pause" | "resume" | "cancel";

const APPLIES: Record<Control, (job: Job) => boolean> = { pause: canPause, resume: canResume, cancel: canCancel };

function send(control: Control, job: Job): Promise<Job> {
  const params = { path: { job_id: job.id }, header: { "If-Match": etag(job) } };
  if (control === "pause") return unwrap(api.PUT("/api/v1/training/jobs/{job_id}/pause", { params }));
  if (control === "resume") return unwrap(api.PUT("/api/v1/training/jobs/{job_id}/resume", { params }));
  return unwrap(api.DELETE("/api/v1/training/jobs/{job_id}", { params }));
}

/** The intent does not depend on progress: after a stale ETag, look again and send it once more if it still applies. */
async function sendFresh(control: Control, job: Job): Promise<Job> {
  try {
    return await send(control, job);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 412)) throw error;
    const fresh = await unwrap(api.GET("/api/v1/training/jobs/{job_id}", { params: { path: { job_id: job.id } } }));
    if (!APPLIES[control](fresh)) throw error;
    return send(control, fresh);
  }
}

export function useJobControl(job: Job) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (control: Control) => sendFresh(control, job),
    onSuccess: (changed) => client.setQueryData(keys.job(changed.id), changed),
    onSettled: () => client.invalidateQueries({ queryKey: keys.jobs }),
  });
}
