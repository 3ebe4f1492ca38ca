import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { isOpen } from "../incidents";

// Events tell of each turn at once; this is for the figures that have none.
const OPEN_INTERVAL_MS = 1_000;

/** A job's incident log, oldest first. */
export function incidentsQuery(jobId: string) {
  return queryOptions({
    queryKey: keys.incidents(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/incidents", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: ({ state }) => (state.data?.some(isOpen) ? OPEN_INTERVAL_MS : false),
  });
}
