import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import type { components } from "@/lib/api.generated";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Job } from "@/lib/types";

type SpecBody = components["schemas"]["JobSpec"];

/** `spec` null: there is nothing worth asking about yet. */
export function planQuery(spec: unknown) {
  return queryOptions({
    queryKey: keys.plan(JSON.stringify(spec)),
    queryFn: ({ signal }) => unwrap(api.POST("/api/v1/training/plan", { body: spec as SpecBody, signal })),
    enabled: spec !== null,
    placeholderData: keepPreviousData,
    retry: false,
    // Other jobs come and go: the placement is only as good as it is fresh.
    refetchInterval: 10_000,
  });
}

export function specOfJobQuery(jobId: string) {
  return queryOptions({
    queryKey: keys.job(jobId),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/training/jobs/{job_id}", { params: { path: { job_id: jobId } }, signal })),
  });
}

export interface Submission {
  spec: unknown;
  /** The same for a retry of the same submission. */
  idempotencyKey: string;
}

/** Submits under the plan that is shown; where that is still on its way, once it is there. */
export function useSubmit() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ spec, idempotencyKey }: Submission): Promise<Job> => {
      const plan = await client.ensureQueryData(planQuery(spec));
      return unwrap(
        api.POST("/api/v1/training/jobs", {
          params: { query: { plan_hash: plan.plan_hash }, header: { "Idempotency-Key": idempotencyKey } },
          body: spec as SpecBody,
        }),
      );
    },
    onSettled: () => client.invalidateQueries({ queryKey: keys.jobs }),
  });
}
