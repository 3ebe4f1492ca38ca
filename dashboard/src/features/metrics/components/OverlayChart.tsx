import type uPlot from "uplot";
import { Select, useComputedColorScheme } from "@mantine/core";
import { useQueries, type UseQueryResult } from "@tanstack/react-query";
import { useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { Keyed } from "@/components/ui/StackedBar";
import { TableToggle } from "@/components/ui/TableToggle";
import { count, measured, MISSING, title } from "@/lib/format";
import type { JobMetrics } from "@/lib/types";
import { overlayQuery } from "../api/overlay";
import { chartsFor, unitOf } from "../catalog";
import { align } from "../curves";
import { lineOf, overlaySentence, overlaySeries, type Run } from "../overlay";
import { baseOptions, readPalette } from "../plot";
import { besideTitle, type Unit } from "../units";
import classes from "./Metrics.module.css";
import { Plot } from "./Plot";

interface Props {
  jobs: readonly { id: string; name: string; live: boolean; lossUnit: Unit }[];
  metric: string;
  onMetric(metric: string): void;
}

/** One metric of several jobs, one over the other. */
export function OverlayChart({ jobs, metric, onMetric }: Props) {
  const [asTable, setAsTable] = useState(false);
  const results = useQueries({ queries: jobs.map(({ id, live }) => overlayQuery(id, metric, live)) });
  const runs = jobs.map(({ id, name }, index) => ({ id, name, curves: results[index]!.data?.curves ?? [] }));
  const unit = unitOf(metric, jobs.every(({ lossUnit }) => lossUnit === "nats") ? "nats" : "");
  const names = [...new Set([metric, ...results.flatMap(({ data }) => data?.names ?? [])])];
  return (
    <Panel
      label="Curves of the runs"
      title={
        <>
          <MetricSelect metric={metric} names={names} onMetric={onMetric} />
          <span className="hint">{besideTitle(unit)}</span>
        </>
      }
      actions={
        <>
          <Legend runs={runs} />
          <TableToggle pressed={asTable} onChange={setAsTable} what="Curves" />
        </>
      }
      flush
    >
      <PanelStates
        source={together(results)}
        what="the curves"
        rows={6}
        isEmpty={() => runs.every(({ curves }) => curves.length === 0)}
        empty={
          <EmptyState title="No curve yet">None of these jobs has reported {metric}. Choose another metric.</EmptyState>
        }
      >
        {() =>
          asTable ? (
            <OverlayTable runs={runs} />
          ) : (
            <Overlay
              runs={runs}
              metric={metric}
              unit={unit}
              drawn={results.map(({ dataUpdatedAt }) => dataUpdatedAt).join()}
            />
          )
        }
      </PanelStates>
    </Panel>
  );
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
  metric,
  names,
  onMetric,
}: {
  metric: string;
  names: readonly string[];
  onMetric(metric: string): void;
}) {
  const drawn = chartsFor(names, "")
    .flatMap((chart) => chart.names)
    .filter((name) => names.includes(name));
  return (
    <Select
      aria-label="Metric"
      w={220}
      value={metric}
      data={drawn.map((name) => ({ value: name, label: title(name) }))}
      allowDeselect={false}
      onChange={(chosen) => chosen && onMetric(chosen)}
    />
  );
}

function Legend({ runs }: { runs: readonly Run[] }) {
  return (
    <span className={classes.legend}>
      {runs.map(({ id, name }, index) => (
        <Keyed key={id} color={`--series-${index + 1}`}>
          {name}
        </Keyed>
      ))}
    </span>
  );
}

const HEIGHT = 300;

function Overlay({ runs, metric, unit, drawn }: { runs: readonly Run[]; metric: string; unit: Unit; drawn: string }) {
  const scheme = useComputedColorScheme();
  const sentence = overlaySentence(runs, unit);
  const build = (root: HTMLElement) => {
    const palette = readPalette(root);
    return {
      options: { ...baseOptions(palette, { log: false, unit }, null), series: [{}, ...overlaySeries(runs, palette)] },
    };
  };
  const read = () => {
    const { x, columns } = align(runs.map(lineOf), false);
    return [x, ...columns] as uPlot.AlignedData;
  };
  return (
    <>
      <Plot
        structure={[metric, scheme, drawn].join("|")}
        height={HEIGHT}
        build={build}
        data={read}
        onZoom={() => {}}
        title={title(metric)}
        sentence={sentence}
      />
      <p className={classes.summary}>{sentence}</p>
    </>
  );
}

interface Row {
  step: number;
  values: readonly (number | undefined)[];
}

function OverlayTable({ runs }: { runs: readonly Run[] }) {
  const lines = runs
    .map(lineOf)
    .map(({ steps, values }) => new Map(steps.map((step, index) => [step, values[index]!])));
  const steps = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => b - a);
  const columns: Column<Row>[] = [
    {
      id: "step",
      header: "Step",
      cell: ({ step }) => count(step),
      value: ({ step }) => step,
      numeric: true,
      width: 90,
    },
    ...runs.map(({ id, name }, index) => ({
      id,
      header: name,
      cell: ({ values }: Row) => (values[index] === undefined ? MISSING : measured(values[index])),
      numeric: true,
    })),
  ];
  return (
    <DataTable
      label="Curves as a table"
      rows={steps.map((step) => ({ step, values: lines.map((line) => line.get(step)) }))}
      columns={columns}
      rowId={({ step }) => String(step)}
    />
  );
}
