import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { ExperimentState, Trial } from "@/lib/types";
import { isOver } from "../experiments";

export const PAGE_SIZE = 50;
export const SORTS = ["-created_at", "created_at", "name", "-name"] as const;
export type Sort = (typeof SORTS)[number];

/** What stands in the list's URL. */
export interface ExperimentFilter {
  status?: ExperimentState[];
  project?: string;
  q?: string;
  sort?: Sort;
  cursor?: string;
}

// Steps have no event of their own: events refresh states at once, this refreshes the numbers.
const PROGRESS_INTERVAL_MS = 3_000;

export function experimentListQuery(filter: ExperimentFilter) {
  const { status, project, q, sort = "-created_at", cursor } = filter;
  const query = { limit: PAGE_SIZE, sort, q, project, cursor, status: status?.join(",") };
  return queryOptions({
    queryKey: keys.experimentList(query),
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/experiments", { params: { query }, signal })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => state.data?.items.some((one) => !isOver(one.state)) && PROGRESS_INTERVAL_MS,
  });
}

export function experimentQuery(id: string) {
  return queryOptions({
    queryKey: keys.experiment(id),
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/experiments/{experiment_id}", { params: { path: { experiment_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data && isOver(state.data.state) ? false : PROGRESS_INTERVAL_MS),
  });
}

const TRIALS_PER_REQUEST = 200;
const LARGE_INTERVAL_MS = 15_000;

/** All trials: thousands at most, in requests of a page each. */
export function trialsQuery(experimentId: string, live: boolean) {
  return queryOptions({
    queryKey: keys.trials(experimentId),
    queryFn: ({ signal }) => allTrials(experimentId, signal),
    refetchInterval: ({ state }) =>
      live && ((state.data?.length ?? 0) > TRIALS_PER_REQUEST ? LARGE_INTERVAL_MS : PROGRESS_INTERVAL_MS),
  });
}

async function allTrials(experimentId: string, signal: AbortSignal): Promise<Trial[]> {
  const trials: Trial[] = [];
  let cursor: string | undefined;
  do {
    const page = await unwrap(
      api.GET("/api/v1/experiments/{experiment_id}/trials", {
        params: { path: { experiment_id: experimentId }, query: { limit: TRIALS_PER_REQUEST, cursor } },
        signal,
      }),
    );
    trials.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return trials;
}
