import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Job } from "@/lib/types";

export interface Extension {
  trial: number;
  /** Those that are done counted. */
  steps: number;
  /** The same for a retry of the same extension. */
  idempotencyKey: string;
}

/** Submits a job that goes on from the newest checkpoint of a trial; the experiment stays as it is. */
export function useExtend(experimentId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ trial, steps, idempotencyKey }: Extension): Promise<Job> =>
      unwrap(
        api.POST("/api/v1/experiments/{experiment_id}/extend", {
          params: { path: { experiment_id: experimentId }, header: { "Idempotency-Key": idempotencyKey } },
          body: { trial, steps },
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: keys.jobs }),
  });
}
