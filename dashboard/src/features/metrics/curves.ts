/** The arithmetic of curves: buckets, merging, smoothing, alignment. Pure; a `Series` is mutated only by `append`. */
import { toNumber } from "@/lib/format";
import type { AnyFloat, Curve } from "@/lib/types";

/** One metric of one rank within one generation; index i of every list is bucket i. */
export interface Series {
  readonly name: string;
  readonly rank: number;
  readonly generation: number;
  bucketSteps: number;
  steps: number[];
  minimum: number[];
  maximum: number[];
  last: number[];
}

export const MOST_BUCKETS = 2_000;

export function fromCurve(curve: Curve): Series {
  return {
    name: curve.name,
    rank: curve.rank,
    generation: curve.generation,
    bucketSteps: Math.max(1, curve.bucket_steps),
    steps: [...curve.steps],
    minimum: curve.minimum.map(toNumber),
    maximum: curve.maximum.map(toNumber),
    last: curve.last.map(toNumber),
  };
}

export function emptySeries(name: string, rank: number, generation: number, bucketSteps = 1): Series {
  return { name, rank, generation, bucketSteps, steps: [], minimum: [], maximum: [], last: [] };
}

/** Adds a live point; false if the series has that step already (a replay after a reconnect). */
export function append(series: Series, step: number, value: AnyFloat): boolean {
  const newest = series.steps.at(-1);
  if (newest !== undefined && step <= newest) return false;
  const number = toNumber(value);
  if (newest !== undefined && sameBucket(newest, step, series.bucketSteps)) mergeLast(series, step, number);
  else pushBucket(series, step, number, number, number);
  if (series.steps.length > MOST_BUCKETS * 2) coarsen(series);
  return true;
}

function sameBucket(a: number, b: number, bucketSteps: number): boolean {
  return Math.floor(a / bucketSteps) === Math.floor(b / bucketSteps);
}

function pushBucket(series: Series, step: number, minimum: number, maximum: number, last: number): void {
  series.steps.push(step);
  series.minimum.push(minimum);
  series.maximum.push(maximum);
  series.last.push(last);
}

function mergeLast(series: Series, step: number, value: number): void {
  const at = series.steps.length - 1;
  series.steps[at] = step;
  series.minimum[at] = lesser(series.minimum[at]!, value);
  series.maximum[at] = greater(series.maximum[at]!, value);
  series.last[at] = value;
}

/** NaN does not hide a bucket's other values. */
function lesser(a: number, b: number): number {
  return Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b);
}

function greater(a: number, b: number): number {
  return Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b);
}

/** Doubles the bucket width in place; extremes survive, so no spike is lost. */
export function coarsen(series: Series): void {
  const { steps, minimum, maximum, last } = series;
  const wide = emptySeries(series.name, series.rank, series.generation, series.bucketSteps * 2);
  for (let i = 0; i < steps.length; i++) {
    const previous = wide.steps.at(-1);
    if (previous === undefined || !sameBucket(previous, steps[i]!, wide.bucketSteps)) {
      pushBucket(wide, steps[i]!, minimum[i]!, maximum[i]!, last[i]!);
      continue;
    }
    const at = wide.steps.length - 1;
    wide.steps[at] = steps[i]!;
    wide.minimum[at] = lesser(wide.minimum[at]!, minimum[i]!);
    wide.maximum[at] = greater(wide.maximum[at]!, maximum[i]!);
    wide.last[at] = last[i]!;
  }
  Object.assign(series, {
    bucketSteps: wide.bucketSteps,
    steps: wide.steps,
    minimum: wide.minimum,
    maximum: wide.maximum,
    last: wide.last,
  });
}

/** Exponential moving average, corrected for its start at zero (Kingma and Ba 2015, section 3); non-finite values pass through. */
export function smooth(values: readonly number[], weight: number): number[] {
  let average = 0;
  let mass = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    average = weight * average + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return average / mass;
  });
}

/** A generation's line with the point of the one before that it continues from, so that a pause leaves no hole in the curve. */
export function bridged(previous: Series | undefined, { steps, last }: Series): { steps: number[]; values: number[] } {
  const first = steps[0];
  if (!previous || first === undefined) return { steps, values: last };
  const at = previous.steps.findLastIndex((step) => step < first);
  return at < 0
    ? { steps, values: last }
    : { steps: [previous.steps[at]!, ...steps], values: [previous.last[at]!, ...last] };
}

/** `undefined` marks a step that belongs to another series only, which is no gap; `null` is one. */
export type Column = (number | null | undefined)[];

/** All steps of all series, ascending, and for each wanted list its column over them. */
export function align(
  lists: readonly { steps: readonly number[]; values: readonly number[] }[],
  log: boolean,
): { x: number[]; columns: Column[] } {
  const x = [...new Set(lists.flatMap(({ steps }) => steps))].sort((a, b) => a - b);
  const position = new Map(x.map((step, index) => [step, index]));
  const columns = lists.map(({ steps, values }) => {
    const column: Column = new Array<undefined>(x.length).fill(undefined);
    steps.forEach((step, index) => {
      column[position.get(step)!] = drawable(values[index]!, log);
    });
    return column;
  });
  return { x, columns };
}

/** A logarithmic axis has no place for zero and below; NaN and the infinities have none on any axis. */
function drawable(value: number, log: boolean): number | null {
  return Number.isFinite(value) && (!log || value > 0) ? value : null;
}

/** Steps at which a series was not a number: marked on the chart, since a gap alone is easily overlooked. */
export function undefinedSteps(series: readonly Series[]): number[] {
  return series.flatMap(({ steps, last }) => steps.filter((_, index) => !Number.isFinite(last[index])));
}

/** Stacked columns: each part on top of those before it. Where generations repeat a step, the newest wins. */
export function stack(parts: readonly (readonly Series[])[]): { x: number[]; columns: number[][] } {
  const values = parts.map(
    (generations) =>
      new Map(generations.flatMap((series) => series.steps.map((step, i) => [step, series.last[i]!] as const))),
  );
  const x = [...new Set(values.flatMap((part) => [...part.keys()]))].sort((a, b) => a - b);
  let below: number[] = new Array<number>(x.length).fill(0);
  const columns = values.map((part) => {
    below = below.map((sum, index) => sum + (part.get(x[index]!) ?? 0));
    return below;
  });
  return { x, columns };
}
