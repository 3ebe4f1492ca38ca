import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import type { StreamStatus } from "@/lib/stream";
import type { MetricRecord } from "@/lib/types";
import { useStream } from "@/lib/useStream";
import { metricsQuery, metricsStreamPath, type MetricsRequest } from "./api/metrics";
import { MetricsStore } from "./store";

export interface MetricsFeed {
  query: {
    data: MetricsStore | undefined;
    error: unknown;
    isPending: boolean;
    dataUpdatedAt: number;
    refetch(): unknown;
  };
  status: StreamStatus;
  /** When the stream last brought something, while it is interrupted; else null. */
  staleSince: number | null;
}

/** One snapshot and one stream for all charts of a job page. */
export function useMetricsFeed(request: MetricsRequest, live: boolean): MetricsFeed {
  const query = useQuery({ ...metricsQuery(request), placeholderData: keepPreviousData });
  const { from, to } = request.range ?? { from: undefined, to: undefined };
  const store = useMemo(() => {
    if (!query.data) return undefined;
    const range = from === undefined || to === undefined ? null : { from, to };
    return new MetricsStore(query.data, range, [...new Set([0, request.rank])]);
  }, [query.data, from, to, request.rank]);
  const status = useStream({
    path: live && store ? metricsStreamPath(request.jobId) : null,
    after: query.data?.as_of_seq ?? null,
    onFrame: (frame) => store?.apply(frame.data as unknown as MetricRecord),
    onMissed: () => void query.refetch(),
  });
  useRefetchAtEnd(live, query.refetch);
  const staleSince = status === "waiting" ? (store?.receivedAt ?? null) : null;
  return { query: { ...query, data: store }, status, staleSince };
}

/** When a job ends, its last points may still have been on their way. */
function useRefetchAtEnd(live: boolean, refetch: () => unknown): void {
  const wasLive = useRef(live);
  useEffect(() => {
    if (wasLive.current && !live) void refetch();
    wasLive.current = live;
  }, [live, refetch]);
}
