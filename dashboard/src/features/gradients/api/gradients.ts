import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, newIdempotencyKey, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

// New steps have no event of their own.
const LIVE_INTERVAL_MS = 3_000;
const JOBS = "/api/v1/training/jobs";

export function gradientsQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: keys.gradients(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/gradients", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: ({ state }) =>
      (live || state.data?.request?.state === "open" || state.data?.steps.some(({ arriving }) => arriving > 0)) &&
      LIVE_INTERVAL_MS,
  });
}

export function stepGradientsQuery(jobId: string, step: number) {
  return queryOptions({
    queryKey: keys.stepGradients(jobId, step),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/training/jobs/{job_id}/gradients/{step}", {
          params: { path: { job_id: jobId, step } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => state.data?.ranks.some(({ state }) => state === "arriving") && LIVE_INTERVAL_MS,
  });
}

interface Order {
  names: string[];
  snapshots: boolean;
}

export function useRecordGradients(jobId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: Order) =>
      unwrap(
        api.POST("/api/v1/training/jobs/{job_id}/gradients", {
          params: { path: { job_id: jobId }, header: { "Idempotency-Key": newIdempotencyKey() } },
          body,
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: keys.gradients(jobId) }),
  });
}

/** A link that the browser follows by itself: the session's cookie goes along. */
export const snapshotUrl = (jobId: string, snapshotId: string) => `${JOBS}/${jobId}/artifacts/${snapshotId}/content`;
