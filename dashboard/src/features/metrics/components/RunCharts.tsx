import { MultiSelect } from "@mantine/core";
import { useQueries, useQuery, type UseQueryResult } from "@tanstack/react-query";
import { EmptyState, LoadingState, Panel, PanelStates } from "@/components/ui/Panel";
import { title } from "@/lib/format";
import type { JobMetrics } from "@/lib/types";
import { chartsQuery } from "../api/charts";
import { overlayQuery } from "../api/overlay";
import { AXES, axesOf, SOURCES, type Axis } from "../axes";
import { chartsFor, unitOf } from "../catalog";
import { drawnBy, toldApart, type OwnChart } from "../ownCharts";
import { runLines, severalLines, type ComparedRun } from "../runs";
import { extentOf, within } from "../stepRange";
import type { Unit } from "../units";
import { settingsOf, type ChartView } from "../view";
import { DrawControls } from "./DrawControls";
import { LineChart } from "./LineChart";
import classes from "./Metrics.module.css";
import { RunTable } from "./RunTable";

export interface RunJob {
  id: string;
  name: string;
  live: boolean;
  lossUnit: Unit;
  project: string | undefined;
  /** Seconds since the epoch. */
  startedAt: number;
}

interface Props {
  jobs: readonly RunJob[];
  metrics: readonly string[];
  view: ChartView;
  onMetrics(metrics: string[]): void;
  onView(change: Partial<ChartView>): void;
}

/** The chosen metrics of several jobs, one over the other: a chart for each metric. */
export function RunCharts({ jobs, metrics, view, onMetrics, onView }: Props) {
  const project = jobs[0]?.project;
  const own = useQuery({ ...chartsQuery(project ?? ""), enabled: project !== undefined }).data ?? [];
  const axes = [view.axis ?? "step", ...own.flatMap(({ axis }) => (axis === null ? [] : [axis]))];
  const asked = [
    ...new Set([...metrics, ...own.flatMap(({ names }) => names), ...axes.flatMap((axis) => SOURCES[axis])]),
  ];
  const results = useQueries({ queries: jobs.map(({ id, live }) => overlayQuery(id, asked, view, live)) });
  const known = results.flatMap(({ data }) => (data ? [data.names] : []));
  const source = together(results);
  const shared = { jobs, results, view, onView };
  return (
    <section aria-label="Curves of the runs">
      <div className={classes.toolbar} role="group" aria-label="Chart settings">
        <MetricSelect metrics={metrics} names={known.flat()} onMetrics={onMetrics} />
        <DrawControls view={view} axes={commonAxes(known)} onView={onView} />
      </div>
      <div className="stack">
        {(source.data === undefined || source.error) && (
          <Panel label="Curves" flush>
            <PanelStates source={source} what="the curves" rows={6}>
              {() => null}
            </PanelStates>
          </Panel>
        )}
        {source.data && (
          <div className={metrics.length > 1 ? classes.grid : undefined}>
            {metrics.map((metric) => (
              <RunChart key={metric} metric={metric} {...shared} />
            ))}
          </div>
        )}
        {source.data && (
          <div className={own.length > 1 ? classes.grid : undefined}>
            {toldApart(own, metrics.map(title)).map((chart) => (
              <OwnRunChart key={chart.id} chart={chart} allowed={commonAxes(known)} {...shared} />
            ))}
          </div>
        )}
      </div>
    </section>
  );
}

/** Axes that all runs allow; while they are not known, those that every run has. */
function commonAxes(known: readonly (readonly string[])[]): Axis[] {
  return AXES.filter((axis) => known.every((names) => axesOf(names).includes(axis)));
}

/** Several queries as one: loading until all are there, in error as soon as one is. */
function together(results: readonly UseQueryResult<JobMetrics>[]) {
  return {
    data: results.every(({ data }) => data !== undefined) ? results : undefined,
    error: results.find(({ error }) => error !== null)?.error ?? null,
    isPending: results.some(({ isPending }) => isPending),
    dataUpdatedAt: Math.min(...results.map(({ dataUpdatedAt }) => dataUpdatedAt)),
    refetch: () => results.map((result) => result.refetch()),
  };
}

function MetricSelect({
  metrics,
  names,
  onMetrics,
}: {
  metrics: readonly string[];
  names: readonly string[];
  onMetrics(metrics: string[]): void;
}) {
  const drawn = chartsFor([...new Set([...metrics, ...names])], "").flatMap((chart) => chart.names);
  const offered = drawn.filter((name) => names.includes(name) || metrics.includes(name));
  return (
    <MultiSelect
      aria-label="Metrics"
      miw={220}
      maw={520}
      value={[...metrics]}
      data={[...new Set(offered)].map((name) => ({ value: name, label: title(name) }))}
      searchable
      hidePickedOptions
      onChange={onMetrics}
    />
  );
}

interface ChartProps extends Pick<Props, "jobs" | "view" | "onView"> {
  metric: string;
  results: readonly UseQueryResult<JobMetrics>[];
}

function RunChart({ metric, jobs, results, view, onView }: ChartProps) {
  const unit = unitOf(metric, jobs.every(({ lossUnit }) => lossUnit === "nats") ? "nats" : "");
  const runs = comparedRuns(jobs, results);
  const settings = settingsOf(view);
  const lines = runLines(runs, metric, unit, settings.axis);
  if (lines.every(({ steps }) => steps.length === 0))
    return (
      <Panel title={title(metric)} flush>
        {results.some(({ isPlaceholderData }) => isPlaceholderData) ? (
          <LoadingState rows={6} what={`the curves of ${metric}`} />
        ) : (
          <EmptyState title="No curve yet">None of these jobs has reported {metric}. Choose another metric.</EmptyState>
        )}
      </Panel>
    );
  const { from, to } = view;
  const asked = from !== undefined && to !== undefined ? { from, to } : null;
  return (
    <LineChart
      title={title(metric)}
      lines={lines}
      read={() => lines}
      settings={settings}
      range={() => within(asked, extentOf(lines))}
      version={results.map(({ dataUpdatedAt }) => dataUpdatedAt).join()}
      tellAll
      onZoom={(range) => onView({ from: range?.from, to: range?.to })}
      table={(shown) => <RunTable lines={shown} />}
    />
  );
}

function comparedRuns(jobs: readonly RunJob[], results: readonly UseQueryResult<JobMetrics>[]): ComparedRun[] {
  const names = uniqueNames(jobs);
  return jobs.map(({ id, startedAt }, index) => ({
    id,
    name: names[index]!,
    startedAt,
    curves: results[index]!.data?.curves ?? [],
  }));
}

interface OwnProps extends Omit<ChartProps, "metric"> {
  chart: OwnChart;
  allowed: readonly Axis[];
}

/** A chart of the project with all its metrics of all runs; nothing where no run has reported any. */
function OwnRunChart({ chart, allowed, jobs, results, view, onView }: OwnProps) {
  const lossUnit = jobs.every(({ lossUnit }) => lossUnit === "nats") ? "nats" : "";
  const settings = drawnBy(chart, settingsOf(view), allowed);
  const lines = severalLines(
    comparedRuns(jobs, results),
    chart.names,
    (name) => unitOf(name, lossUnit),
    settings.axis,
  ).filter(({ steps }) => steps.length > 0);
  if (lines.length === 0) return null;
  const { from, to } = view;
  const asked = from !== undefined && to !== undefined ? { from, to } : null;
  return (
    <LineChart
      title={chart.title}
      lines={lines}
      read={() => lines}
      settings={settings}
      range={() => within(asked, extentOf(lines))}
      version={results.map(({ dataUpdatedAt }) => dataUpdatedAt).join()}
      tellAll
      onZoom={(range) => onView({ from: range?.from, to: range?.to })}
      table={(shown) => <RunTable lines={shown} />}
    />
  );
}

/** Names tell lines apart: jobs of one name get the end of their id. */
function uniqueNames(jobs: readonly RunJob[]): string[] {
  return jobs.map(({ id, name }) =>
    jobs.filter((other) => other.name === name).length > 1 ? `${name} (${id.slice(-4)})` : name,
  );
}
