import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "./client";
import { isTerminal } from "./jobs";
import { keys } from "./keys";

// Progress has no event of its own: events refresh states at once, this refreshes the numbers.
export const PROGRESS_INTERVAL_MS = 3_000;

export function jobQuery(id: string) {
  return queryOptions({
    queryKey: keys.job(id),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}", { params: { path: { job_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data && isTerminal(state.data.state) ? false : PROGRESS_INTERVAL_MS),
  });
}
