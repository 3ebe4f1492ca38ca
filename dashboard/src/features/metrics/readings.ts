/** Lines of readings: the mean over time, or over a job's steps, with what was least and most beside it. Pure but for uPlot's types. */
import type uPlot from "uplot";
import { clock, count, title } from "@/lib/format";
import type { CardCurve, NodeMetrics } from "@/lib/types";
import { align } from "./curves";
import { fade, type Palette } from "./plot";
import { withUnit, type Unit } from "./units";

/** `x`: seconds since the epoch, or steps. A value is NaN where nothing was read. */
export interface ReadingLine {
  name: string;
  x: number[];
  mean: number[];
  minimum: number[];
  maximum: number[];
}

type NodeCurve = NodeMetrics["curves"][number];

/** Readings of a card, in the order in which they are offered. */
export const CARD_READINGS = [
  "utilization_percent",
  "memory_used_bytes",
  "power_watts",
  "temperature_celsius",
  "sm_clock_mhz",
  "memory_clock_mhz",
  "throttled_by_power",
  "throttled_by_heat",
  "throttled_otherwise",
  "pcie_sent_bytes_per_second",
  "pcie_received_bytes_per_second",
  "nvlink_sent_bytes_per_second",
  "nvlink_received_bytes_per_second",
  "ecc_corrected",
  "ecc_uncorrected",
] as const;
export type CardReading = (typeof CARD_READINGS)[number];

export const WINDOWS = { now: 10 * 60, hour: 3_600, day: 86_400 } as const;
export type Window = keyof typeof WINDOWS;

/** The metrics that a node has been read of, each once: those of cards in their own order, then the node's. */
export function metricsOf({ curves }: NodeMetrics): string[] {
  const names = new Set(curves.filter(({ card }) => card !== null).map(({ name }) => name));
  const cards = CARD_READINGS.filter((name) => names.has(name));
  return [...new Set([...cards, ...names, ...curves.map(({ name }) => name)])];
}

export function nodeLines(metrics: NodeMetrics, name: string): ReadingLine[] {
  return metrics.curves
    .filter((curve) => curve.name === name)
    .map((curve) => withGaps({ name: subjectOf(curve), x: curve.times, ...valuesOf(curve) }, metrics.bucket_seconds));
}

/** Readings are taken each second. A bucket of seconds may lack its own because that came a little late; where a longer one does, the node was away. */
const LATE_SECONDS = 3;

/** The line with an unknown value, at which it breaks, wherever nothing was read for longer than a bucket. */
function withGaps(line: ReadingLine, bucketSeconds: number): ReadingLine {
  const ends = line.x.flatMap((at, index) =>
    line.x[index + 1]! - at > bucketSeconds + Math.max(LATE_SECONDS, bucketSeconds / 2) ? [index] : [],
  );
  const split = (values: number[], unknown: (index: number) => number) =>
    values.flatMap((value, index) => (ends.includes(index) ? [value, unknown(index)] : [value]));
  return {
    name: line.name,
    x: split(line.x, (index) => line.x[index]! + bucketSeconds),
    mean: split(line.mean, () => NaN),
    minimum: split(line.minimum, () => NaN),
    maximum: split(line.maximum, () => NaN),
  };
}

function subjectOf({ card, interface: network }: NodeCurve): string {
  return card !== null ? `Card ${card}` : (network ?? "Node");
}

export function cardLines(curves: readonly CardCurve[], name: string): ReadingLine[] {
  const lines = new Map<string, ReadingLine>();
  for (const curve of curves.filter((one) => one.name === name)) {
    const label = `Rank ${curve.rank}, card ${curve.card} of ${curve.node_name}`;
    const line = lines.get(label) ?? { name: label, x: [], mean: [], minimum: [], maximum: [] };
    const { mean, minimum, maximum } = valuesOf(curve);
    line.x.push(...curve.steps);
    line.mean.push(...mean);
    line.minimum.push(...minimum);
    line.maximum.push(...maximum);
    lines.set(label, line);
  }
  return [...lines.values()];
}

function valuesOf({ mean, minimum, maximum }: Record<"mean" | "minimum" | "maximum", readonly (number | null)[]>) {
  const known = (values: readonly (number | null)[]) => values.map((value) => value ?? NaN);
  return { mean: known(mean), minimum: known(minimum), maximum: known(maximum) };
}

/** Words of names that are written in their own way. */
const WRITTEN: Readonly<Record<string, string>> = { cpu: "CPU", ecc: "ECC", nvlink: "NVLink", pcie: "PCIe", sm: "SM" };

/** `pcie_sent_bytes_per_second` -> "PCIe sent", within a sentence: the unit stands beside it. */
export function readingWords(name: string): string {
  const words = name.replace(/_(percent|bytes|watts|celsius|mhz)(_per_second)?$/, "").split("_");
  return words.map((word) => WRITTEN[word] ?? word).join(" ");
}

/** `power_watts` -> "Power". */
export function readingTitle(name: string): string {
  return title(readingWords(name));
}

/** Two minutes around the only time at which something was read; null where all of the data is shown. */
export function shownRange(lines: readonly ReadingLine[], axis: "time" | "step"): { from: number; to: number } | null {
  const [only, ...others] = new Set(lines.flatMap(({ x }) => x));
  return axis === "step" || only === undefined || others.length > 0 ? null : { from: only - 60, to: only + 60 };
}

/** For each line its maximum, minimum and mean. */
export function readingData(lines: readonly ReadingLine[]): uPlot.AlignedData {
  const lists = lines.flatMap(({ x, mean, minimum, maximum }) =>
    [maximum, minimum, mean].map((values) => ({ x, values })),
  );
  const { x, columns } = align(lists, false);
  return [x, ...columns] as uPlot.AlignedData;
}

/** How much colour a band and its edges have, together: those of eight cards lie on top of each other, and would hide their lines. */
const BAND = 0.16;
const EDGE = 0.4;

export function readingSeries(
  lines: readonly ReadingLine[],
  palette: Palette,
): Pick<uPlot.Options, "series" | "bands"> {
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  lines.forEach(({ name, x }, index) => {
    const color = palette.series[index % palette.series.length]!;
    bands.push({ series: [series.length, series.length + 1], fill: fade(color, BAND / lines.length) });
    const edge = { stroke: fade(color, EDGE / lines.length), width: 1, points: { show: false } };
    series.push(edge, edge, { label: name, stroke: color, width: 1.5, points: { show: x.length < 3, size: 5 } });
  });
  return { series, bands };
}

/** One sentence that says what the chart shows. */
export function readingSentence(lines: readonly ReadingLine[], unit: Unit, axis: "time" | "step"): string {
  const newest = lines.flatMap(({ name, x, mean }) => {
    const at = mean.findLastIndex(Number.isFinite);
    return at < 0 ? [] : [{ name, at: x[at]!, value: mean[at]! }];
  });
  if (newest.length === 0) return "Nothing was read in this range.";
  const top = newest.reduce((best, one) => (one.value > best.value ? one : best));
  const low = newest.reduce((best, one) => (one.value < best.value ? one : best));
  const when = axis === "time" ? `at ${clock(top.at * 1000)}` : `at step ${count(top.at)}`;
  const least = newest.length > 1 ? `; least ${withUnit(low.value, unit)} (${low.name})` : "";
  return `${withUnit(top.value, unit)} ${when}${newest.length > 1 ? ` (${top.name})` : ""}${least}.`;
}
