/** Speed against what it costs: peak memory, or the metric where memory is unknown. Pure. */
import type { Analysis, Configuration, Estimate } from "@/lib/types";
import { figureNamed, type FigureSpec, type Goal } from "./figures";

export interface ParetoPoint {
  configuration: number;
  label: string;
  speed: Estimate;
  cost: Estimate;
  front: boolean;
  recommended: boolean;
}

export interface ParetoFront {
  cost: FigureSpec;
  /** Those on the front first, the fastest first. */
  points: readonly ParetoPoint[];
}

const COSTS = ["peak_memory_bytes", "metric"] as const;
const LEAST_POINTS = 2;

/** Null: fewer than two configurations have a speed and the same cost. */
export function paretoFront({ configurations, best }: Analysis): ParetoFront | null {
  for (const name of COSTS) {
    const points = configurations.flatMap((one) => pointOf(one, one[name], best));
    if (points.length >= LEAST_POINTS)
      return {
        cost: figureNamed(name)!,
        points: points.sort((a, b) => Number(b.front) - Number(a.front) || b.speed.value - a.speed.value),
      };
  }
  return null;
}

function pointOf(
  { index, label, samples_per_second: speed, pareto }: Configuration,
  cost: Estimate | null,
  best: number | null,
): ParetoPoint[] {
  if (speed === null || cost === null) return [];
  return [{ configuration: index, label, speed, cost, front: pareto, recommended: index === best }];
}

/** Whether less of a cost is better. */
export function lessIsBetter({ better }: FigureSpec, goal: Goal): boolean {
  return better === null ? goal === "minimize" : better === "less";
}

/** The points that no other beats in the two figures that are drawn, the fastest first: the third may have put others on the front. */
export function staircase({ cost, points }: ParetoFront, goal: Goal): ParetoPoint[] {
  const sign = lessIsBetter(cost, goal) ? 1 : -1;
  const stairs: ParetoPoint[] = [];
  for (const point of points.filter(({ front }) => front)) {
    const last = stairs.at(-1);
    if (!last || sign * point.cost.value < sign * last.cost.value) stairs.push(point);
  }
  return stairs;
}

const MOST_NAMED = 4;

/** "On the front: a; b. No other configuration is at once faster, smaller in memory and better in loss." */
export function paretoSentence({ points }: ParetoFront, metric: string): string {
  const front = points.filter((point) => point.front);
  const more = front.length - MOST_NAMED;
  const named = front.slice(0, MOST_NAMED).map(({ label }) => label);
  return (
    `On the front: ${named.join("; ")}${more > 0 ? `; ${more} more in the table` : ""}. ` +
    `No other configuration is at once faster, smaller in memory and better in ${metric}.`
  );
}
