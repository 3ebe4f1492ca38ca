import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

// Time passes without events.
const LIVE_INTERVAL_MS = 5_000;

/** Where a job's time went. */
export function goodputQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: keys.goodput(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/goodput", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}
