/** What differs between configurations. Pure. */
import type { Analysis, Configuration } from "@/lib/types";

type Valued = Pick<Configuration, "values">;

/** The paths whose values are not the same everywhere, in the order of `axes`. */
export function differing(configurations: readonly Valued[], axes: readonly string[]): string[] {
  const known = [...axes, ...configurations.flatMap(({ values }) => Object.keys(values))];
  return [...new Set(known)].filter(
    (path) => new Set(configurations.map(({ values }) => JSON.stringify(values[path]))).size > 1,
  );
}

const STRATEGY = "parallelism.strategy";

/** A single process has no strategy among its values; where strategies vary, its own one stands beside the others. */
export function withStrategies(analysis: Analysis): Analysis {
  if (!analysis.axes.includes(STRATEGY)) return analysis;
  const configurations = analysis.configurations.map((one) => ({
    ...one,
    values: { [STRATEGY]: one.strategy, ...one.values },
  }));
  return { ...analysis, configurations };
}

/** The values of a path, numbers by size, texts as they come; each once. */
export function valuesOf(configurations: readonly Valued[], path: string): unknown[] {
  const found = new Map(configurations.map(({ values }) => [JSON.stringify(values[path]), values[path]] as const));
  const values = [...found.values()].filter((value) => value !== undefined);
  return values.every((value) => typeof value === "number") ? values.sort((a, b) => Number(a) - Number(b)) : values;
}
