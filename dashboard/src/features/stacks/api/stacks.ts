import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

/** Each look stops the ranks for a moment: it is taken only on request. */
export function stacksQuery(jobId: string) {
  return queryOptions({
    queryKey: keys.stacks(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}/stacks", { params: { path: { job_id: jobId } }, signal })),
    enabled: false,
    retry: false,
  });
}
