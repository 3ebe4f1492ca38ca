import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { isTerminal } from "@/lib/jobs";
import { keys } from "@/lib/keys";
import type { JobState } from "@/lib/types";

export const PAGE_SIZE = 50;
export const SORTS = ["-created_at", "created_at", "name", "-name", "priority", "-priority"] as const;
export type Sort = (typeof SORTS)[number];

/** What the list shows. */
export interface JobFilter {
  status?: JobState[];
  q?: string;
  /** The id of the experiment whose trials are shown. */
  experiment?: string;
  sort?: Sort;
  cursor?: string;
}

/** What stands in the list's URL. */
export interface JobListView extends JobFilter {
  /** Jobs that are picked to be compared. */
  pick?: string[];
}

// Progress has no event of its own: events refresh states at once, this refreshes the numbers.
const PROGRESS_INTERVAL_MS = 3_000;

export function jobListQuery(filter: JobFilter) {
  const { status, q, experiment, sort = "-created_at", cursor } = filter;
  const query = {
    limit: PAGE_SIZE,
    sort,
    q: q || undefined,
    experiment,
    cursor,
    status: status?.join(",") || undefined,
  };
  return queryOptions({
    queryKey: keys.jobList(query),
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/training/jobs", { params: { query }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: PROGRESS_INTERVAL_MS,
  });
}

export function jobQuery(id: string) {
  return queryOptions({
    queryKey: keys.job(id),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}", { params: { path: { job_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data && isTerminal(state.data.state) ? false : PROGRESS_INTERVAL_MS),
  });
}
