import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { LogPage } from "@/lib/types";

/** What stands in the URL. */
export interface LogFilter {
  rank?: number;
  level?: Level;
  q?: string;
  /** Take `q` as a regular expression. */
  regex?: boolean;
  /** So many lines around each that matches. */
  context?: number;
  /** The seq of a linked line. */
  line?: number;
}

export const LEVELS = ["debug", "info", "warning", "error"] as const;
export type Level = (typeof LEVELS)[number];

export const CONTEXTS = [2, 5, 20] as const;

/** Which page: that after or before a place, from a line or a moment on, or the newest. */
export interface LogPlace {
  after?: number;
  before?: number;
  tail?: boolean;
  line?: number;
  since?: string;
  limit?: number;
}

const PAGE = 500;
const BEFORE_LINKED_LINE = 100;

function fetchPage(jobId: string, filter: LogFilter, place: LogPlace, signal?: AbortSignal): Promise<LogPage> {
  const { rank, level, q, regex, context } = filter;
  const search = q ? { q, regex, context } : {};
  const query = { limit: PAGE, rank: rank?.toString(), level, ...search, ...place };
  return unwrap(api.GET("/api/v1/training/jobs/{job_id}/logs", { params: { path: { job_id: jobId }, query }, signal }));
}

/** The next page with a line: a long search comes in several pages, most of which may have none. */
export async function fetchLogs(
  jobId: string,
  filter: LogFilter,
  place: LogPlace,
  signal?: AbortSignal,
): Promise<LogPage> {
  const first = await fetchPage(jobId, filter, place, signal);
  const backwards = place.tail || place.before !== undefined;
  let page = first;
  while (page.items.length === 0 && (backwards ? page.next_before !== null : !page.at_end)) {
    const on = backwards ? { before: page.next_before! } : { after: page.next_after };
    page = await fetchPage(jobId, filter, { limit: place.limit ?? PAGE, ...on }, signal);
  }
  if (page === first || !backwards) return page;
  return { ...first, items: page.items, next_before: page.next_before };
}

/** The newest lines, or those around a linked one. */
export function logsQuery(jobId: string, filter: LogFilter) {
  const place = filter.line === undefined ? { tail: true } : { after: Math.max(0, filter.line - BEFORE_LINKED_LINE) };
  return queryOptions({
    queryKey: keys.logs(jobId, filter),
    queryFn: ({ signal }) => fetchLogs(jobId, filter, place, signal),
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    gcTime: 0,
    structuralSharing: false, // what is fetched again begins anew, also where it is the same
  });
}

export function logsStreamPath(jobId: string): string {
  return `/api/v1/training/jobs/${encodeURIComponent(jobId)}/logs/stream`;
}

export function logsDownloadPath(jobId: string): string {
  return `/api/v1/training/jobs/${encodeURIComponent(jobId)}/logs/download`;
}
