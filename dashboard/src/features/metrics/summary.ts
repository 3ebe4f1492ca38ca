import { count } from "@/lib/format";
import type { ChartSpec } from "./catalog";
import type { Series } from "./curves";
import { withoutUnit, withUnit } from "./units";

/** One sentence that says what the chart shows, for people who do not see it and for those in a hurry. */
export function summarize(chart: ChartSpec, series: readonly Series[]): string {
  const main = series.filter(
    (one) =>
      one.name === chart.names.find((name) => series.some((other) => other.name === name && other.steps.length > 0)),
  );
  const newest = main.at(-1);
  if (!newest || newest.steps.length === 0) return "Nothing reported yet.";
  const value = newest.last.at(-1)!;
  const now = `${withUnit(value, chart.unit)} at step ${count(newest.steps.at(-1))}`;
  return chart.better ? `${now}; ${chart.better === "less" ? "min" : "max"} ${best(main, chart)}.` : `${now}.`;
}

function best(series: readonly Series[], { better, unit }: ChartSpec): string {
  let [found, at] = [NaN, 0];
  for (const one of series) {
    const values = better === "less" ? one.minimum : one.maximum;
    values.forEach((value, index) => {
      const wins = Number.isNaN(found) || (better === "less" ? value < found : value > found);
      if (Number.isFinite(value) && wins) [found, at] = [value, one.steps[index]!];
    });
  }
  return Number.isNaN(found) ? "unknown" : `${withoutUnit(found, unit)} near step ${count(at)}`;
}
