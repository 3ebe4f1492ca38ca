import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

const BUCKETS = 2_000;
const LIVE_INTERVAL_MS = 5_000;

/** Some metrics of rank 0 of one job, for charts that it shares with other jobs. */
export function overlayQuery(
  jobId: string,
  names: readonly string[],
  { from, to }: { from?: number; to?: number },
  live: boolean,
) {
  const query = { name: [...names], ranks: "0", buckets: BUCKETS, first_step: from, last_step: to };
  return queryOptions({
    queryKey: keys.overlay(jobId, { names, from, to }),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/metrics/jobs/{job_id}", { params: { path: { job_id: jobId }, query }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}
