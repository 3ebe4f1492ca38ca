import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

/** A run that goes on may part from the other one. */
const LIVE_INTERVAL_MS = 10_000;

/** Each job compared with the first one. */
export function comparisonQuery(jobs: readonly string[], live: boolean) {
  return queryOptions({
    queryKey: keys.comparison(jobs),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/compare", { params: { query: { jobs: jobs.join(",") } }, signal })),
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}

/** The files by which a bundle of code differs from another one; neither ever changes. */
export function codeChangesQuery({ since, bundle }: { since: string; bundle: string }) {
  return queryOptions({
    queryKey: keys.codeChanges(since, bundle),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/training/bundles/{digest}/changes", {
          params: { path: { digest: bundle }, query: { since } },
          signal,
        }),
      ),
    staleTime: Infinity,
  });
}
