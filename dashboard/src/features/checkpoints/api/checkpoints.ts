import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, newIdempotencyKey, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Checkpoint } from "@/lib/types";

const PAGE = 200;

export function checkpointsQuery(jobId: string) {
  return queryOptions({
    queryKey: keys.checkpoints(jobId),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/checkpoints/jobs/{job_id}", {
          params: { path: { job_id: jobId }, query: { limit: PAGE } },
          signal,
        }),
      ),
  });
}

function useChange<Input>(jobId: string, mutationFn: (input: Input) => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({ mutationFn, onSettled: () => client.invalidateQueries({ queryKey: keys.checkpoints(jobId) }) });
}

export function usePin(jobId: string) {
  return useChange(jobId, ({ id, pinned }: Checkpoint) => {
    const params = { path: { checkpoint_id: id } };
    return pinned
      ? unwrap(api.PUT("/api/v1/checkpoints/{checkpoint_id}/unpin", { params }))
      : unwrap(api.PUT("/api/v1/checkpoints/{checkpoint_id}/pin", { params }));
  });
}

/** Deletes; `confirm` says that the user has seen what depends on it: the coordinator asks for it in these three cases. */
export function useDelete(jobId: string) {
  return useChange(jobId, ({ id, used_by, pinned, latest }: Checkpoint) =>
    unwrap(
      api.DELETE("/api/v1/checkpoints/{checkpoint_id}", {
        params: { path: { checkpoint_id: id }, query: { confirm: pinned || latest || used_by.length > 0 } },
      }),
    ),
  );
}

export interface Restore {
  checkpointId: string;
  name: string;
  steps: number | null;
}

export function useRestore() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ checkpointId, name, steps }: Restore) =>
      unwrap(
        api.POST("/api/v1/checkpoints/{checkpoint_id}/restore", {
          params: { path: { checkpoint_id: checkpointId }, header: { "Idempotency-Key": newIdempotencyKey() } },
          body: { name: name || null, steps },
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: keys.jobs }),
  });
}
