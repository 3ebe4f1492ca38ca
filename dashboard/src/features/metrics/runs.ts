/** Several runs in one chart, each a line in its own colour. Pure. */
import type { Curve } from "@/lib/types";
import { placing, type Axis } from "./axes";
import { emptySeries, fromCurve, type Series } from "./curves";
import { lineOf, type Line } from "./lines";
import type { Unit } from "./units";

export interface ComparedRun {
  id: string;
  name: string;
  /** Seconds since the epoch. */
  startedAt: number;
  curves: readonly Curve[];
}

/**
 * All generations of a metric in one series: where steps were done again, the newest counts.
 *
 * A bucket is known by its first step, since the last one of a generation ends early.
 */
export function joined(name: string, generations: readonly Series[]): Series {
  const buckets = new Map<number, { from: Series; at: number }>();
  for (const from of generations.toSorted((a, b) => a.generation - b.generation))
    from.steps.forEach((step, at) => buckets.set(step - (step % from.bucketSteps), { from, at }));
  const ordered = [...buckets.keys()].sort((a, b) => a - b).map((first) => buckets.get(first)!);
  const take = (what: "steps" | "minimum" | "maximum" | "mean" | "last" | "count" | "nans" | "times") =>
    ordered.map(({ from, at }) => from[what][at]!);
  return {
    ...emptySeries(name, 0, 0, Math.max(1, ...generations.map(({ bucketSteps }) => bucketSteps))),
    steps: take("steps"),
    minimum: take("minimum"),
    maximum: take("maximum"),
    mean: take("mean"),
    last: take("last"),
    count: take("count"),
    nans: take("nans"),
    times: take("times"),
  };
}

/** One metric of every run, on one axis. */
export function runLines(runs: readonly ComparedRun[], metric: string, unit: Unit, axis: Axis): Line[] {
  return severalLines(runs, [metric], () => unit, axis);
}

/** Some metrics of every run, on one axis, each line in its own colour, from `firstColor` on. */
export function severalLines(
  runs: readonly ComparedRun[],
  metrics: readonly string[],
  unit: (metric: string) => Unit,
  axis: Axis,
  firstColor = 0,
): Line[] {
  const lines = runs.flatMap(({ id, name, startedAt, curves }, index) => {
    const all = curves.map(fromCurve);
    const of = (wanted: string) =>
      joined(
        wanted,
        all.filter((one) => one.name === wanted),
      );
    const place = placing(axis, { startedAt, series: (wanted) => [of(wanted)] });
    return metrics.map((metric, at) => {
      const label = metrics.length > 1 || firstColor > 0 ? `${name} · ${metric}` : name;
      const color = firstColor + index * metrics.length + at;
      const source = { jobId: id, name: metric, rank: 0 };
      return { ...lineOf(of(metric), { label, color, unit: unit(metric), place }), source };
    });
  });
  return lines.map((line, index) => ({ ...line, dashed: lines.slice(0, index).some((other) => covers(other, line)) }));
}

/** Whether two lines are one to the eye: equal values at most of their common places. */
function covers(below: Line, above: Line): boolean {
  const values = new Map(below.x.map((place, at) => [place, below.value[at]!]));
  const common = above.x.flatMap((place, at) => (values.has(place) ? [values.get(place) === above.value[at]] : []));
  return common.filter(Boolean).length > common.length / 2;
}
