import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { useOnce } from "@/lib/once";
import { definitionOf, ownChartOf, type OwnChart } from "../ownCharts";

// Charts that somebody else changes have no event of their own.
const REFETCH_MS = 60_000;
const MOST_JOBS = 100;

export function chartsQuery(project: string) {
  return queryOptions({
    queryKey: keys.charts(project),
    queryFn: async ({ signal }) => {
      const found = await unwrap(api.GET("/api/v1/training/charts", { params: { query: { project } }, signal }));
      return found.map(ownChartOf);
    },
    refetchInterval: REFETCH_MS,
  });
}

/** The newest jobs of a project, to be drawn beside another one. */
export function projectJobsQuery(project: string) {
  return queryOptions({
    queryKey: [...keys.charts(project), "jobs"],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/training/jobs", {
          params: { query: { project, limit: MOST_JOBS, fields: "id,name,created_at,started_at,state" } },
          signal,
        }),
      ),
  });
}

function useChange<Input, Output>(
  project: string,
  mutationFn: (input: Input) => Promise<Output>,
  /** What is shown of it at once. */
  foreseen: (charts: OwnChart[], input: Input) => OwnChart[] = (charts) => charts,
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    onMutate: (input) =>
      void client.setQueryData(chartsQuery(project).queryKey, (charts) => charts && foreseen(charts, input)),
    onSettled: () => client.invalidateQueries({ queryKey: keys.charts(project), exact: true }),
  });
}

/** Adds a chart, or changes it where nobody has done so since it was read. */
export function useSaveChart(project: string) {
  return useChange(
    project,
    useOnce((chart: OwnChart, key) =>
      chart.id === null ? createChart(project, chart, key) : changeChart(chart.id, chart),
    ),
  );
}

export function createChart(project: string, chart: OwnChart, key: string) {
  return unwrap(
    api.POST("/api/v1/training/charts", {
      params: { header: { "Idempotency-Key": key } },
      body: { project, name: chart.title, definition: definitionOf(chart) },
    }),
  );
}

function changeChart(id: string, chart: OwnChart) {
  return unwrap(
    api.PUT("/api/v1/training/charts/{chart_id}", {
      params: { path: { chart_id: id }, header: { "If-Match": `"${chart.revision}"` } },
      body: { name: chart.title, definition: definitionOf(chart) },
    }),
  );
}

export function useRemoveChart(project: string) {
  return useChange(project, (id: string) =>
    unwrap(api.DELETE("/api/v1/training/charts/{chart_id}", { params: { path: { chart_id: id } } })),
  );
}

export function useOrderCharts(project: string) {
  return useChange(
    project,
    (ids: string[]) => unwrap(api.PUT("/api/v1/training/charts/order", { body: { project, ids } })),
    (charts, ids) => charts.toSorted((a, b) => ids.indexOf(a.id!) - ids.indexOf(b.id!)),
  );
}

/** Saves charts that only this browser has. One that is sent again after an error is not made twice. */
export function useShareCharts(project: string) {
  return useChange(project, async (charts: readonly { key: string; chart: OwnChart }[]) => {
    for (const { key, chart } of charts) await createChart(project, chart, key);
  });
}
