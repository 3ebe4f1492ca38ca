import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

const PAGE = 200;

/** A job's whole history, oldest first, a page at a time. */
export function jobEventsQuery(jobId: string) {
  return infiniteQueryOptions({
    queryKey: keys.events(jobId),
    queryFn: ({ signal, pageParam }) =>
      unwrap(
        api.GET("/api/v1/training/jobs/{job_id}/events", {
          params: { path: { job_id: jobId }, query: { after: pageParam, limit: PAGE } },
          signal,
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: (page) => (page.items.length === PAGE ? page.next_after : undefined),
  });
}

export const EVENTS_STREAM_PATH = "/api/v1/events/stream";
