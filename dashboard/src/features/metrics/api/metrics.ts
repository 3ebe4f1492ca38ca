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
/** Of one request: the coordinator takes addresses of up to 8 KiB. */
const MOST_NAMES = 50;
const MOST_NAME_BYTES = 6_000;

async function curvesOf(request: MetricsRequest, name: string[] | undefined, signal: AbortSignal): Promise<JobMetrics> {
  const { jobId, range, rank } = request;
  const ranks = rank === 0 ? "0" : `0,${rank}`;
  const query = { name, ranks, buckets: BUCKETS, first_step: range?.from, last_step: range?.to };
  return unwrap(api.GET("/api/v1/metrics/jobs/{job_id}", { params: { path: { job_id: jobId }, query }, signal }));
}

/** The names in parts, each of which one address can hold. */
export function inParts(names: string[]): string[][] {
  const parts: string[][] = [];
  let bytes = 0;
  for (const name of names) {
    const size = "&name=".length + encodeURIComponent(name).length;
    const part = parts.at(-1);
    if (part === undefined || part.length === MOST_NAMES || bytes + size > MOST_NAME_BYTES) {
      parts.push([name]);
      bytes = size;
    } else {
      part.push(name);
      bytes += size;
    }
  }
  return parts;
}

/** Every curve of the job. The oldest of the positions is kept: what the stream then repeats is dropped by step. */
async function snapshot(request: MetricsRequest, signal: AbortSignal): Promise<JobMetrics> {
  const first = await curvesOf(request, undefined, signal);
  const have = new Set(first.curves.map((curve) => curve.name));
  const rest = first.names.filter((name) => !have.has(name));
  const curves = [...first.curves];
  for (const part of inParts(rest)) curves.push(...(await curvesOf(request, part, signal)).curves);
  return { ...first, curves };
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
