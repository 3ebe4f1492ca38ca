import { useComputedColorScheme } from "@mantine/core";
import type uPlot from "uplot";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { duration, percent, title } from "@/lib/format";
import { SPLIT_TITLE, STEP_PARTS } from "../catalog";
import { placing, type Placing } from "../axes";
import { stack, type Series } from "../curves";
import { csvOf } from "../exports";
import { lineOf, stepsBetween, type DrawSettings, type Line } from "../lines";
import { BUSY } from "../measures";
import { baseOptions, fade, readPalette } from "../plot";
import { smoothed } from "../smoothing";
import type { StepRange } from "../stepRange";
import type { MetricsStore } from "../store";
import { useStoreVersion } from "../useStoreVersion";
import classes from "./Metrics.module.css";
import { ByRank, type RankComparison } from "./ByRank";
import { ChartFrame } from "./ChartFrame";
import { Plot, type Marking } from "./Plot";

interface Props {
  store: MetricsStore;
  rank: number;
  startedAt: number;
  settings: DrawSettings;
  marking: Marking;
  byRank: RankComparison;
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
export function SplitChart({ store, rank, startedAt, settings, marking, byRank, onZoom }: Props) {
  const scheme = useComputedColorScheme();
  useStoreVersion(store);
  const { axis } = settings;
  const parts = newestMeans(store, rank);
  const sentence = sentenceOf(parts, rank);
  const place = placing(axis, { startedAt, series: (name) => store.series(name) });
  const lines = () => partLines(store, rank, place);
  return (
    <ChartFrame
      title={SPLIT_TITLE}
      unit=""
      legend={<SplitLegend />}
      entries={STEP_PARTS.map((name, color) => ({ label: label(name), color }))}
      sentence={sentence}
      table={() => <DataTable label="Step time parts" rows={parts} columns={COLUMNS} rowId={(part) => part.name} />}
      csv={() => csvOf(lines().flat())}
      plot={(height, drawn) => (
        <Plot
          store={store}
          structure={[rank, scheme, JSON.stringify(settings)].join("|")}
          height={height}
          marking={marking}
          placeOf={({ step }) => (axis === "step" ? step : NaN)}
          onZoom={(range) => onZoom(range && stepsBetween(lines().flat(), range.from, range.to))}
          title={SPLIT_TITLE}
          sentence={sentence}
          drawn={drawn}
          build={(root) => ({ options: stackedOptions(root, settings, () => store.shownRange) })}
          data={() => stackedData(lines(), settings)}
        />
      )}
    >
      <ByRank names={[BUSY]} {...byRank} />
    </ChartFrame>
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
function stackedOptions(
  root: HTMLElement,
  { axis }: DrawSettings,
  range: () => StepRange | null,
): Omit<uPlot.Options, "width" | "height"> {
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
  const base = baseOptions(palette, { log: false, units: ["s"], axis, x: axis === "step" ? range : undefined });
  const scales = {
    x: base.scales!.x!,
    y: { range: (_: uPlot, __: number, high: number): [number, number] => [0, high || 1] },
  };
  return { ...base, scales, series: [{}, ...lines], bands };
}

/** For each part its generations: the mean of a bucket, since a single step of it says little. */
function partLines(store: MetricsStore, rank: number, place: Placing): Line[][] {
  const meansOf = (series: Series): Series => ({ ...series, last: series.mean });
  return STEP_PARTS.map((name, color) =>
    store.series(name, rank).map((series) => lineOf(meansOf(series), { label: label(name), color, unit: "s", place })),
  );
}

function stackedData(parts: readonly Line[][], { smoothing }: DrawSettings): uPlot.AlignedData {
  const { x, columns } = stack(
    parts.map((lines) =>
      lines.map((line) => ({ x: line.x, values: smoothing ? smoothed(line.value, smoothing) : line.value })),
    ),
  );
  return [x, ...columns];
}

function newestMeans(store: MetricsStore, rank: number): Part[] {
  const told = STEP_PARTS.flatMap((name) => {
    const newest = store.series(name, rank).at(-1);
    return newest ? [{ name, seconds: mean(newest.mean.slice(-NEWEST)) }] : [];
  });
  const total = told.reduce((sum, { seconds }) => sum + seconds, 0);
  return told.map((part) => ({ ...part, share: total > 0 ? part.seconds / total : 0 }));
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
