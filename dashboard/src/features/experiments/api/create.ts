import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import type { components } from "@/lib/api.generated";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Schema } from "@/lib/spec/schema";
import type { Experiment } from "@/lib/types";

type SpecBody = components["schemas"]["ExperimentSpec"];

export const experimentSchemaQuery = queryOptions({
  queryKey: keys.experimentSchema,
  queryFn: async ({ signal }) => (await unwrap(api.GET("/api/v1/experiments/spec-schema", { signal }))) as Schema,
  staleTime: Infinity,
});

/** `spec` null: there is nothing worth asking about yet. */
export function experimentPlanQuery(spec: unknown) {
  return queryOptions({
    queryKey: keys.experimentPlan(JSON.stringify(spec)),
    queryFn: ({ signal }) => unwrap(api.POST("/api/v1/experiments/plan", { body: spec as SpecBody, signal })),
    enabled: spec !== null,
    placeholderData: keepPreviousData,
    retry: false,
  });
}

export interface Submission {
  spec: unknown;
  /** The same for a retry of the same submission. */
  idempotencyKey: string;
  /** Refuse it as `already_exists` where there is an experiment of this project and name, in place of giving that one the grid. */
  isNew: boolean;
}

/** Starts what was asked for once its plan is known; null: the plan has problems or nothing to run, and the page shows it. */
export function useStartExperiment() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ spec, idempotencyKey, isNew }: Submission): Promise<Experiment | null> => {
      const { errors, trials, refused } = await client.ensureQueryData(experimentPlanQuery(spec));
      if (errors.length > 0 || trials === refused) return null;
      return unwrap(
        api.POST("/api/v1/experiments", {
          params: { header: { "Idempotency-Key": idempotencyKey, ...(isNew ? { "If-None-Match": "*" } : {}) } },
          body: spec as SpecBody,
        }),
      );
    },
    // The plan may have been made before there was an experiment of this name.
    onError: (_, { spec }) => client.invalidateQueries({ queryKey: keys.experimentPlan(JSON.stringify(spec)) }),
    onSettled: () => client.invalidateQueries({ queryKey: keys.experiments }),
  });
}
