/** When outlying trials can be told at all, as the analysis decides it. Pure. */
import type { Configuration } from "@/lib/types";

const LEAST_REPEATS = 3;
const LEAST_DEVIATIONS = 4;

/** Each configuration with three repeats or more tells as many deviations from its median, less one. */
export function canTellOutliers(configurations: readonly Pick<Configuration, "step_seconds">[]): boolean {
  const repeats = configurations.map(({ step_seconds: step }) => step?.count ?? 0).filter((n) => n >= LEAST_REPEATS);
  return repeats.reduce((sum, n) => sum + n - 1, 0) >= LEAST_DEVIATIONS;
}
