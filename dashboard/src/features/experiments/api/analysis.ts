import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Experiment, ExperimentAnalysis } from "@/lib/types";

/** The newest analysis; null: there is none yet. An experiment says when it was analyzed: another time is another analysis. */
export function analysisQuery({ id, analyzed_at: at }: Pick<Experiment, "id" | "analyzed_at">) {
  const params = { path: { experiment_id: id } };
  return queryOptions({
    queryKey: [...keys.analysis(id), at],
    queryFn: async ({ signal }): Promise<ExperimentAnalysis | null> =>
      at === null ? null : unwrap(api.GET("/api/v1/experiments/{experiment_id}/analysis", { params, signal })),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });
}

export function useAnalyze(experimentId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (): Promise<ExperimentAnalysis> =>
      unwrap(
        api.POST("/api/v1/experiments/{experiment_id}/analyze", { params: { path: { experiment_id: experimentId } } }),
      ),
    onSuccess: (made) => client.setQueryData([...keys.analysis(experimentId), made.made_at], made),
    onSettled: () => client.invalidateQueries({ queryKey: keys.experiment(experimentId) }),
  });
}
