import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import type { StreamStatus } from "@/lib/stream";
import type { MetricRecord } from "@/lib/types";
import { useLingering } from "@/lib/useLingering";
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
  /** Whether records may still come: for a while after the end too. */
  arriving: boolean;
  /** When the stream last brought something, while it is interrupted; else null. */
  staleSince: number | null;
}

/** Nodes may be behind with what their ranks have reported when these end. */
const LATE_MS = 60_000;

/** One snapshot and one stream for all charts of a job page. */
export function useMetricsFeed(request: MetricsRequest, live: boolean): MetricsFeed {
  const query = useQuery({ ...metricsQuery(request), placeholderData: keepPreviousData });
  const { from, to } = request.range ?? { from: undefined, to: undefined };
  const store = useMemo(() => {
    if (!query.data) return undefined;
    const range = from === undefined || to === undefined ? null : { from, to };
    return new MetricsStore(query.data, range, [...new Set([0, request.rank])]);
  }, [query.data, from, to, request.rank]);
  const arriving = useLingering(live, LATE_MS);
  const stream = useStream({
    path: arriving && store ? metricsStreamPath(request.jobId) : null,
    after: query.data?.as_of_seq ?? null,
    onFrame: (frame) => store?.apply(frame.data as unknown as MetricRecord),
    onMissed: () => void query.refetch(),
  });
  useRefetchAtEnd(live, query.refetch);
  useRefetchAtEnd(arriving, query.refetch);
  const status = live ? stream : "closed";
  const staleSince = status === "waiting" ? (store?.receivedAt ?? null) : null;
  return { query: { ...query, data: store }, status, arriving, staleSince };
}

/** What was on its way at an end, and the stream may not have brought. */
function useRefetchAtEnd(on: boolean, refetch: () => unknown): void {
  const was = useRef(on);
  useEffect(() => {
    if (was.current && !on) void refetch();
    was.current = on;
  }, [on, refetch]);
}
