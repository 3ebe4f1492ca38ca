/** One metric of several runs in one chart, each run in its colour. Pure but for uPlot's types. */
import type uPlot from "uplot";
import { count } from "@/lib/format";
import type { Curve } from "@/lib/types";
import { fromCurve, type Series } from "./curves";
import { fade, type Palette } from "./plot";
import { withoutUnit, type Unit } from "./units";

export interface Run {
  id: string;
  name: string;
  curves: readonly Curve[];
}

/** Of a run, all generations in one line: where steps were done again, the newest counts. */
export function lineOf({ curves }: Run): { steps: number[]; values: number[] } {
  const values = new Map<number, number>();
  for (const series of [...curves].map(fromCurve).sort(byGeneration))
    series.steps.forEach((step, index) => values.set(step, series.last[index]!));
  const steps = [...values.keys()].sort((a, b) => a - b);
  return { steps, values: steps.map((step) => values.get(step)!) };
}

function byGeneration(a: Series, b: Series): number {
  return a.generation - b.generation;
}

const WIDER_PX = 2.5;

/** Earlier runs are drawn wider and paler, so that runs that are equal are all seen, one inside the other. */
export function overlaySeries(runs: readonly Run[], palette: Palette): uPlot.Series[] {
  return runs.map(({ name }, index) => {
    const behind = runs.length - 1 - index;
    const color = palette.series[index % palette.series.length]!;
    return {
      label: name,
      stroke: behind > 0 ? fade(color, 0.55) : color,
      width: 1.5 + WIDER_PX * behind,
      points: { show: false },
    };
  });
}

/** Where each run stands, in words. */
export function overlaySentence(runs: readonly Run[], unit: Unit): string {
  return `${runs
    .map((run) => {
      const { steps, values } = lineOf(run);
      return steps.length === 0
        ? `${run.name} has not reported it`
        : `${run.name} ${withoutUnit(values.at(-1)!, unit)} at step ${count(steps.at(-1))}`;
    })
    .join("; ")}.`;
}
