import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { ApiError } from "@/lib/errors";
import { canResize, etag } from "@/lib/jobs";
import { keys } from "@/lib/keys";
import type { Job, Resize } from "@/lib/types";

function send(job: Job, size: Resize): Promise<Job> {
  return unwrap(
    api.PUT("/api/v1/training/jobs/{job_id}/resize", {
      params: { path: { job_id: job.id }, header: { "If-Match": etag(job) } },
      body: size,
    }),
  );
}

/** Progress makes a revision stale: look again, and send it once more unless someone else gave the job another size meanwhile. */
async function sendFresh(job: Job, size: Resize): Promise<Job> {
  try {
    return await send(job, size);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 412)) throw error;
    const fresh = await unwrap(api.GET("/api/v1/training/jobs/{job_id}", { params: { path: { job_id: job.id } } }));
    if (!canResize(fresh) || fresh.world_size !== job.world_size) throw error;
    return send(fresh, size);
  }
}

export function useResize(job: Job) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (size: Resize) => sendFresh(job, size),
    onSuccess: (changed) => client.setQueryData(keys.job(changed.id), changed),
    onSettled: () => client.invalidateQueries({ queryKey: keys.jobs }),
  });
}
