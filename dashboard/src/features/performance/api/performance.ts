import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

// Steps pass without events.
const LIVE_INTERVAL_MS = 3_000;

/** How fast a job is, and what it takes. */
export function performanceQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: keys.performance(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/performance", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}
