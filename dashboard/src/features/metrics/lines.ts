/** The lines of a chart: what a series, or a run of several generations, is drawn as. Pure. */
import type { Axis, Placing } from "./axes";
import type { Series } from "./curves";
import { smoothed, type Smoothing } from "./smoothing";
import type { Unit } from "./units";

export interface Line {
  /** What the legend calls it: a metric or a run. Lines of one label are one entry. */
  readonly label: string;
  /** Which of the series' colours it has. */
  readonly color: number;
  readonly unit: Unit;
  readonly generation: number;
  readonly bucketSteps: number;
  readonly steps: readonly number[];
  readonly x: readonly number[];
  readonly minimum: readonly number[];
  readonly maximum: readonly number[];
  /** What is drawn of a bucket: its last point, or its mean. */
  readonly value: readonly number[];
  /** How many points of a bucket are not a number. */
  readonly nans: readonly number[];
  /** Drawn as points too: there are few of them. */
  readonly sparse: boolean;
  /** Lies on an earlier line, which is seen through its gaps. */
  readonly dashed: boolean;
  /** Where its points can be asked for, if they can. */
  readonly source?: LineSource;
}

export interface LineSource {
  readonly jobId: string;
  readonly name: string;
  readonly rank: number;
}

export interface DrawSettings {
  readonly log: boolean;
  readonly smoothing: Smoothing | null;
  readonly axis: Axis;
}

export const PLAIN: DrawSettings = { log: false, smoothing: null, axis: "step" };

/** Of a rate that jumps from step to step the last one of a bucket says nothing. */
export function isRate(name: string): boolean {
  return name === "mfu" || name.endsWith("_per_second");
}

const FEW = 3;

type Key = Pick<Line, "label" | "color" | "unit">;

/** A line over steps, a value for each. */
export function madeLine(key: Key, steps: readonly number[], values: readonly number[]): Line {
  const single = { generation: 0, bucketSteps: 1, dashed: false, sparse: steps.length < FEW };
  const nans = values.map(() => 0);
  return { ...key, ...single, steps, x: steps, minimum: values, maximum: values, value: values, nans };
}

export function lineOf(series: Series, { place, ...key }: Key & { place: Placing }): Line {
  const { name, generation, bucketSteps, steps, minimum, maximum, mean, last, nans } = series;
  return {
    ...madeLine(key, steps, isRate(name) ? mean : last),
    generation,
    bucketSteps,
    minimum,
    maximum,
    nans,
    x: place(series),
    sparse: name.startsWith("eval_") || steps.length < FEW,
  };
}

export function hasBand({ bucketSteps }: Line): boolean {
  return bucketSteps > 1;
}

/** What stands in the legend, in the order of the lines. */
export function labelsOf(lines: readonly Line[]): string[] {
  return [...new Set(lines.map(({ label }) => label))];
}

/** A generation's line with the point of the one before that it continues from, so that a pause leaves no hole in the curve. */
export function bridged(previous: Line | undefined, { steps, x, value }: Line): { x: number[]; values: number[] } {
  const own = { x: [...x], values: [...value] };
  const first = steps[0];
  if (previous === undefined || first === undefined) return own;
  const at = previous.steps.findLastIndex((step) => step < first);
  return at < 0 ? own : { x: [previous.x[at]!, ...own.x], values: [previous.value[at]!, ...own.values] };
}

/** The bridged lines, smoothed where that is wanted. */
export function drawnLines(
  lines: readonly Line[],
  smoothing: Smoothing | null,
): { x: number[]; values: number[]; smooth: number[] | null }[] {
  return lines.map((line, index) => {
    const before = lines[index - 1];
    const { x, values } = bridged(before?.label === line.label ? before : undefined, line);
    return { x, values, smooth: smoothing && smoothed(values, smoothing) };
  });
}

/** The value of a label that stands at a place; the newest generation's where several do. */
export function valueAt(lines: readonly Line[], place: number, smoothing: Smoothing | null): number | undefined {
  for (const line of lines.toReversed()) {
    const at = line.x.indexOf(place);
    if (at >= 0) return (smoothing ? smoothed(line.value, smoothing) : line.value)[at];
  }
  return undefined;
}

/** The steps of what lies between two places of the axis; null where nothing does. */
export function stepsBetween(lines: readonly Line[], from: number, to: number): { from: number; to: number } | null {
  let [first, last] = [Infinity, -Infinity];
  for (const { x, steps } of lines)
    x.forEach((place, at) => {
      if (place < from || place > to) return;
      first = Math.min(first, steps[at]!);
      last = Math.max(last, steps[at]!);
    });
  return first < last ? { from: first, to: last } : null;
}

/** Places at which a line was not a number, if only at one step of the bucket: marked on the chart, since a gap alone is easily overlooked. */
export function undefinedPlaces(lines: readonly Line[]): number[] {
  return lines.flatMap(({ x, value, nans }) => x.filter((_, at) => nans[at]! > 0 || !Number.isFinite(value[at])));
}
