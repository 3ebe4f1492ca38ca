import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { MediaKey } from "@/lib/types";

// What is logged has no event of its own.
const LIVE_INTERVAL_MS = 5_000;
const JOBS = "/api/v1/training/jobs";

export function mediaQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: keys.media(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/media", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}

export interface MediaPlace {
  readonly key: string;
  readonly kind: MediaKey["kind"];
  readonly step: number;
  /** Of all, where there are few. */
  readonly ranks: readonly number[];
}

/** What ranks logged under a key at a step. In a running job the step may be done again, and logged anew. */
export function mediaObjectQuery(jobId: string, place: MediaPlace, live: boolean) {
  const { key, kind, step, ranks } = place;
  return queryOptions({
    queryKey: keys.mediaObject(jobId, place),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/training/jobs/{job_id}/media/object", {
          params: { path: { job_id: jobId }, query: { key, kind, step, rank: ranks.join(",") } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: live ? 0 : Infinity,
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}

export interface HistogramPlace {
  readonly key: string;
  readonly rank: number;
  readonly first: number;
  readonly last: number;
  /** How many steps there are: more of them are another answer. */
  readonly steps: number;
}

/** As many as are drawn one behind the other. */
export const MOST_HISTOGRAMS = 40;

export function histogramsQuery(jobId: string, place: HistogramPlace) {
  const { key, rank, first, last } = place;
  return queryOptions({
    queryKey: keys.mediaHistograms(jobId, place),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/training/jobs/{job_id}/media/histograms", {
          params: {
            path: { job_id: jobId },
            query: { key, rank, first_step: first, last_step: last, most: MOST_HISTOGRAMS },
          },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });
}

/** A link that the browser follows by itself: the session's cookie goes along. */
export const imageUrl = (jobId: string, objectId: string, number: number) =>
  `${JOBS}/${jobId}/media/${objectId}/images/${number}`;
