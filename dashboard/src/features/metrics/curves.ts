/** The arithmetic of curves: buckets, merging, alignment. Pure; a `Series` is mutated only by `append`. */
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
  mean: number[];
  last: number[];
  /** Points in the bucket that are numbers. */
  count: number[];
  /** Points in the bucket that are none. */
  nans: number[];
  /** Of the last point, in seconds since the epoch. */
  times: number[];
}

/** One bucket of a `Series`: what it holds at one index. */
interface Bucket {
  step: number;
  minimum: number;
  maximum: number;
  mean: number;
  last: number;
  count: number;
  nans: number;
  time: number;
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
    mean: curve.mean.map(toNumber),
    last: curve.last.map(toNumber),
    count: curve.count.map((points, at) => points - curve.nan_count[at]!),
    nans: [...curve.nan_count],
    times: [...curve.times],
  };
}

export function emptySeries(name: string, rank: number, generation: number, bucketSteps = 1): Series {
  const nothing = { steps: [], minimum: [], maximum: [], mean: [], last: [], count: [], nans: [], times: [] };
  return { name, rank, generation, bucketSteps, ...nothing };
}

/** Adds a live point; false if the series has that step already (a replay after a reconnect). */
export function append(series: Series, step: number, value: AnyFloat, time: number): boolean {
  const newest = series.steps.at(-1);
  if (newest !== undefined && step <= newest) return false;
  const number = toNumber(value);
  const nans = Number.isNaN(number) ? 1 : 0;
  add(series, { step, minimum: number, maximum: number, mean: number, last: number, count: 1 - nans, nans, time });
  if (series.steps.length > MOST_BUCKETS * 2) coarsen(series);
  return true;
}

/** Puts a bucket behind the others, or into the last one where it belongs there. */
function add(series: Series, bucket: Bucket): void {
  const newest = series.steps.length - 1;
  const joins = newest >= 0 && sameBucket(series.steps[newest]!, bucket.step, series.bucketSteps);
  const now = joins ? merged(bucketAt(series, newest), bucket) : bucket;
  const at = joins ? newest : newest + 1;
  series.steps[at] = now.step;
  series.minimum[at] = now.minimum;
  series.maximum[at] = now.maximum;
  series.mean[at] = now.mean;
  series.last[at] = now.last;
  series.count[at] = now.count;
  series.nans[at] = now.nans;
  series.times[at] = now.time;
}

function bucketAt({ steps, minimum, maximum, mean, last, count, nans, times }: Series, at: number): Bucket {
  return {
    step: steps[at]!,
    minimum: minimum[at]!,
    maximum: maximum[at]!,
    mean: mean[at]!,
    last: last[at]!,
    count: count[at]!,
    nans: nans[at]!,
    time: times[at]!,
  };
}

function sameBucket(a: number, b: number, bucketSteps: number): boolean {
  return Math.floor(a / bucketSteps) === Math.floor(b / bucketSteps);
}

function merged(first: Bucket, second: Bucket): Bucket {
  const count = first.count + second.count;
  return {
    ...second,
    minimum: known(first.minimum, second.minimum, Math.min),
    maximum: known(first.maximum, second.maximum, Math.max),
    mean: known(first.mean, second.mean, (a, b) => a + ((b - a) * second.count) / count),
    count,
    nans: first.nans + second.nans,
  };
}

/** NaN does not hide a bucket's other values. */
function known(a: number, b: number, join: (a: number, b: number) => number): number {
  return Number.isNaN(a) ? b : Number.isNaN(b) ? a : join(a, b);
}

/** Doubles the bucket width in place; extremes survive, so no spike is lost. */
export function coarsen(series: Series): void {
  const wide = emptySeries(series.name, series.rank, series.generation, series.bucketSteps * 2);
  series.steps.forEach((_, at) => add(wide, bucketAt(series, at)));
  Object.assign(series, wide);
}

/** `undefined` marks a place that belongs to another series only, which is no gap; `null` is one. */
export type Column = (number | null | undefined)[];

/** All places of all lists, ascending, and for each list its column over them. */
export function align(
  lists: readonly { x: readonly number[]; values: readonly number[] }[],
  log: boolean,
): { x: number[]; columns: Column[] } {
  const all = [...new Set(lists.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const position = new Map(all.map((place, index) => [place, index]));
  const columns = lists.map(({ x, values }) => {
    const column: Column = new Array<undefined>(all.length).fill(undefined);
    x.forEach((place, index) => {
      column[position.get(place)!] = drawable(values[index]!, log);
    });
    return column;
  });
  return { x: all, columns };
}

/** A logarithmic axis has no place for zero and below; NaN and the infinities have none on any axis. */
function drawable(value: number, log: boolean): number | null {
  return Number.isFinite(value) && (!log || value > 0) ? value : null;
}

/** Stacked columns: each part on top of those before it. Where generations share a place, the newest wins. */
export function stack(parts: readonly (readonly { x: readonly number[]; values: readonly number[] }[])[]): {
  x: number[];
  columns: number[][];
} {
  const values = parts.map(
    (generations) =>
      new Map(generations.flatMap((line) => line.x.map((place, at) => [place, line.values[at]!] as const))),
  );
  const x = [...new Set(values.flatMap((part) => [...part.keys()]))].sort((a, b) => a - b);
  let below: number[] = new Array<number>(x.length).fill(0);
  const columns = values.map((part) => {
    below = below.map((sum, index) => sum + (part.get(x[index]!) ?? 0));
    return below;
  });
  return { x, columns };
}
