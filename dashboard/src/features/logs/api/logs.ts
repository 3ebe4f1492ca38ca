import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

/** What stands in the URL. */
export interface LogFilter {
  rank?: number;
  level?: Level;
  q?: string;
  /** The seq of a linked line. */
  line?: number;
}

export const LEVELS = ["debug", "info", "warning", "error"] as const;
export type Level = (typeof LEVELS)[number];

const PAGE = 500;
const BEFORE_LINKED_LINE = 100;

export function fetchLogs(
  jobId: string,
  filter: LogFilter,
  where: { after?: number; before?: number; tail?: boolean },
  signal?: AbortSignal,
) {
  const query = { limit: PAGE, rank: filter.rank?.toString(), level: filter.level, q: filter.q || undefined, ...where };
  return unwrap(api.GET("/api/v1/training/jobs/{job_id}/logs", { params: { path: { job_id: jobId }, query }, signal }));
}

/** The newest lines, or those around a linked one. */
export function logsQuery(jobId: string, filter: LogFilter) {
  const where = filter.line === undefined ? { tail: true } : { after: Math.max(0, filter.line - BEFORE_LINKED_LINE) };
  return queryOptions({
    queryKey: keys.logs(jobId, filter),
    queryFn: ({ signal }) => fetchLogs(jobId, filter, where, signal),
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    gcTime: 0,
  });
}

export function logsStreamPath(jobId: string): string {
  return `/api/v1/training/jobs/${encodeURIComponent(jobId)}/logs/stream`;
}

export function logsDownloadPath(jobId: string): string {
  return `/api/v1/training/jobs/${encodeURIComponent(jobId)}/logs/download`;
}
