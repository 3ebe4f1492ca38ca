import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { serverNow } from "@/lib/serverTime";
import { WINDOWS, type Window } from "../readings";

/** Buckets of a curve over steps. */
const STEP_BUCKETS = 360;
/** A record of readings comes every five seconds. */
const REFRESH_MS: Readonly<Record<Window, number>> = { now: 5_000, hour: 10_000, day: 60_000 };
const LIVE_INTERVAL_MS = 10_000;

/** What a node and its cards did, up to now, in as many buckets as the coordinator thinks right: it knows how finely readings are stored. */
export function nodeMetricsQuery(nodeId: string, window: Window) {
  return queryOptions({
    queryKey: keys.nodeMetrics(nodeId, window),
    queryFn: ({ signal }) => {
      const since = new Date(serverNow() - WINDOWS[window] * 1000).toISOString();
      const query = { since };
      return unwrap(
        api.GET("/api/v1/cluster/nodes/{node_id}/metrics", { params: { path: { node_id: nodeId }, query }, signal }),
      );
    },
    refetchInterval: REFRESH_MS[window],
    placeholderData: keepPreviousData,
  });
}

/** One metric of the cards of some ranks over the job's steps. */
export function cardCurvesQuery(jobId: string, name: string, ranks: string, live: boolean) {
  const query = { names: "step_seconds", cards: name, ranks, buckets: STEP_BUCKETS };
  return queryOptions({
    queryKey: keys.cardCurves(jobId, name, ranks),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/metrics/jobs/{job_id}", { params: { path: { job_id: jobId }, query }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}

/** The coordinator looks at the last five minutes: more often than this it says the same. */
const IDLE_INTERVAL_MS = 30_000;

export const idleCardsQuery = queryOptions({
  queryKey: keys.idleCards,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/cluster/idle-cards", { signal })),
  refetchInterval: IDLE_INTERVAL_MS,
});

export function usageQuery(jobId: string, live: boolean) {
  return queryOptions({
    queryKey: keys.usage(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/usage", { params: { path: { job_id: jobId } }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}
