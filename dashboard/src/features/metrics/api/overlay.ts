import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

const BUCKETS = 2_000;
const LIVE_INTERVAL_MS = 5_000;

/** One metric of rank 0 of one job, for a chart that it shares with other jobs. */
export function overlayQuery(jobId: string, name: string, live: boolean) {
  const query = { name: [name], ranks: "0", buckets: BUCKETS };
  return queryOptions({
    queryKey: keys.overlay(jobId, name),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/metrics/jobs/{job_id}", { params: { path: { job_id: jobId }, query }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}
