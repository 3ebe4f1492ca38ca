import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import type { components } from "@/lib/api.generated";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Schema } from "@/lib/spec/schema";
import type { Job } from "@/lib/types";

type SpecBody = components["schemas"]["JobSpec"];

export const specSchemaQuery = queryOptions({
  queryKey: keys.specSchema,
  queryFn: async ({ signal }) => (await unwrap(api.GET("/api/v1/training/spec-schema", { signal }))) as Schema,
  staleTime: Infinity,
});

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
  planHash: string | undefined;
  /** The same for a retry of the same submission. */
  idempotencyKey: string;
}

export function useSubmit() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ spec, planHash, idempotencyKey }: Submission): Promise<Job> =>
      unwrap(
        api.POST("/api/v1/training/jobs", {
          params: { query: { plan_hash: planHash }, header: { "Idempotency-Key": idempotencyKey } },
          body: spec as SpecBody,
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: keys.jobs }),
  });
}
