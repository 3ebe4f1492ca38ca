import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, newIdempotencyKey, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Artifact } from "@/lib/types";
import { openInPerfetto, PerfettoError } from "../perfetto";

const PAGE = 200;
// While a trace is on its way.
const LIVE_INTERVAL_MS = 1_500;

const JOBS = "/api/v1/training/jobs";

export function artifactsQuery(jobId: string, awaited: boolean) {
  return queryOptions({
    queryKey: keys.artifacts(jobId),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/training/jobs/{job_id}/artifacts", {
          params: { path: { job_id: jobId }, query: { kind: "trace", limit: PAGE } },
          signal,
        }),
      ),
    refetchInterval: ({ state }) =>
      (awaited || state.data?.items.some((item) => item.state === "arriving")) && LIVE_INTERVAL_MS,
  });
}

/** The newest request for traces, or null. */
export function profileQuery(jobId: string) {
  return queryOptions({
    queryKey: keys.profile(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/profile", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: ({ state }) => state.data?.state === "open" && LIVE_INTERVAL_MS,
  });
}

export interface Order {
  steps: number;
  ranks: number[];
}

function useChange<Input>(jobId: string, mutationFn: (input: Input) => Promise<unknown>) {
  const client = useQueryClient();
  const refresh = () =>
    Promise.all([keys.artifacts(jobId), keys.profile(jobId)].map((queryKey) => client.invalidateQueries({ queryKey })));
  return useMutation({ mutationFn, onSettled: refresh });
}

export function useProfile(jobId: string) {
  return useChange(jobId, (body: Order) =>
    unwrap(
      api.POST("/api/v1/training/jobs/{job_id}/profile", {
        params: { path: { job_id: jobId }, header: { "Idempotency-Key": newIdempotencyKey() } },
        body,
      }),
    ),
  );
}

export function useRemove(jobId: string) {
  return useChange(jobId, ({ id }: Artifact) =>
    unwrap(
      api.DELETE("/api/v1/training/jobs/{job_id}/artifacts/{artifact_id}", {
        params: { path: { job_id: jobId, artifact_id: id } },
      }),
    ),
  );
}

/** Opens a trace in Perfetto's page. The variables of the mutation are the trace. */
export function usePerfetto(jobName: string) {
  return useMutation({
    mutationFn: (artifact: Artifact) =>
      openInPerfetto(
        `${jobName}, rank ${artifact.rank}, steps ${artifact.first_step} to ${artifact.last_step}`,
        async () => {
          const answer = await fetch(contentUrl(artifact));
          if (!answer.ok)
            throw new PerfettoError(`The coordinator answered ${answer.status} to the download of the trace.`);
          return answer.arrayBuffer();
        },
      ),
  });
}

/** Links that the browser follows by itself: the session's cookie goes along. */
export const contentUrl = ({ job_id: job, id }: Artifact) => `${JOBS}/${job}/artifacts/${id}/content`;
export const eventFilesUrl = (jobId: string) => `${JOBS}/${jobId}/tensorboard`;
