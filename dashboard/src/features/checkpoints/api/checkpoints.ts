import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { useOnce } from "@/lib/once";
import type { Checkpoint } from "@/lib/types";

const PAGE = 200;
const PAGE_OF_ALL = 50;
const REFETCH_MS = 10_000;

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

/** What of a checkpoint can be downloaded from this coordinator. */
export function checkpointFilesQuery(checkpointId: string) {
  return queryOptions({
    queryKey: keys.checkpointFiles(checkpointId),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/checkpoints/{checkpoint_id}/files", {
          params: { path: { checkpoint_id: checkpointId } },
          signal,
        }),
      ),
  });
}

/** A link that the browser follows by itself: the session's cookie goes along. */
export const downloadUrl = (checkpointId: string, format: "checkpoint" | "safetensors") =>
  `/api/v1/checkpoints/${checkpointId}/download?format=${format}`;

/** What the list over all jobs shows. */
export interface CheckpointFilter {
  q?: string;
  cursor?: string;
}

export function allCheckpointsQuery({ q, cursor }: CheckpointFilter) {
  const query = { limit: PAGE_OF_ALL, q: q || undefined, cursor };
  return queryOptions({
    queryKey: keys.allCheckpoints(query),
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/checkpoints", { params: { query }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });
}

function useChange<Input>(mutationFn: (input: Input) => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({ mutationFn, onSettled: () => client.invalidateQueries({ queryKey: keys.everyCheckpoint }) });
}

export function usePin() {
  return useChange(({ id, pinned }: Checkpoint) => {
    const params = { path: { checkpoint_id: id } };
    return pinned
      ? unwrap(api.PUT("/api/v1/checkpoints/{checkpoint_id}/unpin", { params }))
      : unwrap(api.PUT("/api/v1/checkpoints/{checkpoint_id}/pin", { params }));
  });
}

/** Deletes; `confirm` says that the user has seen what depends on it: the coordinator asks for it in these three cases. */
export function useDelete() {
  return useChange(({ id, used_by, pinned, latest }: Checkpoint) =>
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
  /** Set the checkpoint's own job back to it, in place of a new job. */
  inPlace: boolean;
}

export function useRestore() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: useOnce(({ checkpointId, name, steps, inPlace }: Restore, key) =>
      unwrap(
        api.POST("/api/v1/checkpoints/{checkpoint_id}/restore", {
          params: { path: { checkpoint_id: checkpointId }, header: { "Idempotency-Key": key } },
          body: { name: inPlace ? null : name || null, steps, in_place: inPlace },
        }),
      ),
    ),
    onSettled: () =>
      Promise.all([keys.jobs, keys.everyCheckpoint].map((queryKey) => client.invalidateQueries({ queryKey }))),
  });
}
