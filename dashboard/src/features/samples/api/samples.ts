import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

// Steps have no event.
const LIVE_INTERVAL_MS = 10_000;

/** The audit of a job's samples; each further page brings further ranges. */
export function samplesQuery(jobId: string, live: boolean) {
  return infiniteQueryOptions({
    queryKey: keys.samples(jobId),
    queryFn: ({ signal, pageParam }) =>
      unwrap(
        api.GET("/api/v1/training/jobs/{job_id}/samples", {
          params: { path: { job_id: jobId }, query: { cursor: pageParam } },
          signal,
        }),
      ),
    initialPageParam: undefined as string | undefined,
    refetchInterval: live && LIVE_INTERVAL_MS,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
}
