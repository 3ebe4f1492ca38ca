import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { JobMetrics } from "@/lib/types";
import type { StepRange } from "../stepRange";

export interface MetricsRequest {
  jobId: string;
  range: StepRange | null;
  /** Besides rank 0. */
  rank: number;
}

const BUCKETS = 2_000;

async function curvesOf(request: MetricsRequest, name: string[] | undefined, signal: AbortSignal): Promise<JobMetrics> {
  const { jobId, range, rank } = request;
  const ranks = rank === 0 ? "0" : `0,${rank}`;
  const query = { name, ranks, buckets: BUCKETS, first_step: range?.from, last_step: range?.to };
  return unwrap(api.GET("/api/v1/metrics/jobs/{job_id}", { params: { path: { job_id: jobId }, query }, signal }));
}

/** Every curve of the job. The older of the two positions is kept: what the stream then repeats is dropped by step. */
async function snapshot(request: MetricsRequest, signal: AbortSignal): Promise<JobMetrics> {
  const first = await curvesOf(request, undefined, signal);
  const have = new Set(first.curves.map((curve) => curve.name));
  const rest = first.names.filter((name) => !have.has(name));
  if (rest.length === 0) return first;
  const more = await curvesOf(request, rest, signal);
  return { ...first, curves: [...first.curves, ...more.curves] };
}

export function metricsQuery(request: MetricsRequest) {
  return queryOptions({
    queryKey: keys.metrics(request.jobId, { range: request.range, rank: request.rank }),
    queryFn: ({ signal }) => snapshot(request, signal),
    // The stream keeps it current; a refetch would only rebuild the same charts.
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    gcTime: 0,
  });
}

export function metricsStreamPath(jobId: string): string {
  return `/api/v1/metrics/stream/${encodeURIComponent(jobId)}`;
}
