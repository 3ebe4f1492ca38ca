import { useComputedColorScheme } from "@mantine/core";
import type uPlot from "uplot";
import { useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Panel } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import { duration, percent, title } from "@/lib/format";
import { STEP_PARTS } from "../catalog";
import { smooth, stack, type Series } from "../curves";
import { baseOptions, fade, readPalette } from "../plot";
import type { MetricsStore, StepRange } from "../store";
import { useStoreVersion } from "../useStoreVersion";
import classes from "./Metrics.module.css";
import { Plot, type Marking } from "./Plot";

interface Props {
  store: MetricsStore;
  rank: number;
  smoothing: number;
  marking: Marking;
  onZoom(range: StepRange | null): void;
}

interface Part {
  name: string;
  seconds: number;
  share: number;
}

const COLUMNS: readonly Column<Part>[] = [
  { id: "part", header: "Part", cell: (part) => label(part.name) },
  {
    id: "seconds",
    header: "Mean of the newest steps",
    cell: (part) => time(part.seconds),
    value: (part) => part.seconds,
    numeric: true,
  },
  { id: "share", header: "Share", cell: (part) => percent(part.share, 1), value: (part) => part.share, numeric: true },
];
const NEWEST = 50;

/** Where a step's time goes, stacked; measured on one rank. */
export function SplitChart({ store, rank, smoothing, marking, onZoom }: Props) {
  const [asTable, setAsTable] = useState(false);
  const scheme = useComputedColorScheme();
  useStoreVersion(store);
  const parts = newestMeans(store, rank);
  const sentence = sentenceOf(parts, rank);
  return (
    <Panel
      title="Step time"
      label="Step time chart"
      actions={
        <>
          <SplitLegend />
          <TableToggle pressed={asTable} onChange={setAsTable} what="Step time" />
        </>
      }
      flush
    >
      {asTable ? (
        <DataTable label="Step time parts" rows={parts} columns={COLUMNS} rowId={(part) => part.name} />
      ) : (
        <Plot
          store={store}
          structure={`${rank}|${scheme}|${smoothing}`}
          height={210}
          marking={marking}
          onZoom={onZoom}
          title="Step time"
          sentence={sentence}
          build={(root) => ({ options: stackedOptions(root, store.range) })}
          data={() => stackedData(store, rank, smoothing)}
        />
      )}
      <p className={classes.summary}>{sentence}</p>
    </Panel>
  );
}

function SplitLegend() {
  return (
    <span className={classes.legend}>
      {STEP_PARTS.map((name, index) => (
        <span key={name} className={classes.key}>
          <span className={classes.swatch} style={{ background: `var(--series-${index + 1})` }} aria-hidden />
          {label(name)}
        </span>
      ))}
    </span>
  );
}

/** Drawn from the top of the stack down, each filled to the axis, so that the lower ones cover. */
function stackedOptions(root: HTMLElement, range: StepRange | null): Omit<uPlot.Options, "width" | "height"> {
  const palette = readPalette(root);
  const surface = getComputedStyle(root).getPropertyValue("--surface").trim();
  const bands = STEP_PARTS.slice(1).map((_, index) => ({
    series: [index + 2, index + 1] as [number, number],
    fill: fade(palette.series[index + 1]!, 0.55),
  }));
  const lines = STEP_PARTS.map((name, index) => ({
    label: name,
    stroke: surface,
    width: 0.5,
    points: { show: false },
    ...(index === 0 ? { fill: fade(palette.series[0]!, 0.55) } : {}),
  }));
  const base = baseOptions(palette, { log: false, unit: "s" }, range);
  const scales = {
    x: base.scales!.x!,
    y: { range: (_: uPlot, __: number, high: number): [number, number] => [0, high || 1] },
  };
  return { ...base, scales, series: [{}, ...lines], bands };
}

function stackedData(store: MetricsStore, rank: number, smoothing: number): uPlot.AlignedData {
  const smoothed = (series: Series): Series =>
    smoothing > 0 ? { ...series, last: smooth(series.last, smoothing) } : series;
  const { x, columns } = stack(STEP_PARTS.map((name) => store.series(name, rank).map(smoothed)));
  return [x, ...columns];
}

function newestMeans(store: MetricsStore, rank: number): Part[] {
  const seconds = STEP_PARTS.map((name) => mean(store.series(name, rank).at(-1)?.last.slice(-NEWEST) ?? []));
  const total = seconds.reduce((sum, value) => sum + value, 0);
  return STEP_PARTS.map((name, index) => ({
    name,
    seconds: seconds[index]!,
    share: total > 0 ? seconds[index]! / total : 0,
  }));
}

function mean(values: readonly number[]): number {
  const finite = values.filter(Number.isFinite);
  return finite.length ? finite.reduce((sum, value) => sum + value, 0) / finite.length : 0;
}

function sentenceOf(parts: readonly Part[], rank: number): string {
  const total = parts.reduce((sum, part) => sum + part.seconds, 0);
  if (total === 0) return `Rank ${rank} has reported no step times yet.`;
  const top = [...parts].sort((a, b) => b.seconds - a.seconds).slice(0, 2);
  return `${time(total)} per step on rank ${rank}, measured: ${top.map((part) => `${label(part.name).toLowerCase()} ${percent(part.share)}`).join(", ")}.`;
}

function label(name: string): string {
  return title(name.replace(/_seconds$/, ""));
}

function time(seconds: number): string {
  return seconds < 1 ? `${(seconds * 1000).toFixed(1)} ms` : duration(seconds);
}
