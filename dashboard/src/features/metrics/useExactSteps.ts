import { useQueries } from "@tanstack/react-query";
import { exactStepQuery } from "./api/exactStep";
import type { Line } from "./lines";
import { unplacedExtremes, extremeKey, type ExactSteps } from "./summary";

/** The exact steps of the extremes that a chart tells, asked for while the chart is `seen`. */
export function useExactSteps(lines: readonly Line[], all: boolean, seen: boolean): ExactSteps {
  const wanted = unplacedExtremes(lines, all);
  const results = useQueries({ queries: wanted.map((extreme) => ({ ...exactStepQuery(extreme), enabled: seen })) });
  return new Map(
    wanted.flatMap((extreme, index) => {
      const step = results[index]!.data;
      return step === undefined || step === null ? [] : [[extremeKey(extreme), step] as const];
    }),
  );
}
