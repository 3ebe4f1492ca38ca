import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { decode, type RankGrid } from "../heatmap";
import type { StepRange } from "../stepRange";

export interface HeatmapRequest {
  jobId: string;
  name: string;
  /** The highest value of each cell instead of its mean. */
  highest: boolean;
  range: StepRange | null;
}

const LIVE_INTERVAL_MS = 10_000;

export function heatmapQuery(request: HeatmapRequest, live: boolean) {
  const { jobId, name, highest, range } = request;
  const statistic = highest ? ("maximum" as const) : ("mean" as const);
  const query = { name, statistic, first_step: range?.from, last_step: range?.to };
  return queryOptions({
    queryKey: keys.heatmap(jobId, { name, highest, range }),
    queryFn: async ({ signal }): Promise<RankGrid> =>
      decode(
        await unwrap(
          api.GET("/api/v1/metrics/jobs/{job_id}/heatmap", { params: { path: { job_id: jobId }, query }, signal }),
        ),
      ),
    refetchInterval: live && LIVE_INTERVAL_MS,
  });
}
