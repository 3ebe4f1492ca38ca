import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { toNumber } from "@/lib/format";
import { keys } from "@/lib/keys";
import type { Curve } from "@/lib/types";

/** An extreme of a bucket of several steps, of which the chart does not know at which it was. */
export interface UnplacedExtreme {
  readonly jobId: string;
  readonly name: string;
  readonly rank: number;
  readonly which: "minimum" | "maximum";
  readonly value: number;
  /** The steps of the bucket. */
  readonly first: number;
  readonly last: number;
}

/** Buckets are ten times as fine with each reading, so that a bucket of a million steps needs as many readings. */
const MOST_READINGS = 6;
const BUCKETS = 2_000;

/** The step of an extreme; null where its points are deleted, and only their roll-ups are left. Asked once for each extreme. */
export function exactStepQuery(extreme: UnplacedExtreme) {
  return queryOptions({
    queryKey: keys.exactStep(extreme.jobId, extreme),
    queryFn: ({ signal }) => findStep(extreme, signal),
    staleTime: Infinity,
    retry: false,
  });
}

async function findStep(extreme: UnplacedExtreme, signal: AbortSignal): Promise<number | null> {
  const { jobId, name, rank } = extreme;
  let { first, last } = extreme;
  for (let reading = 0; reading < MOST_READINGS; reading++) {
    const query = { name: [name], ranks: String(rank), buckets: BUCKETS, first_step: first, last_step: last };
    const { curves } = await unwrap(
      api.GET("/api/v1/metrics/jobs/{job_id}", { params: { path: { job_id: jobId }, query }, signal }),
    );
    const found = placeOf(curves, extreme);
    if (found === null || found.first === found.last) return found?.last ?? null;
    if (found.first <= first && found.last >= last) return null;
    ({ first, last } = found);
  }
  return null;
}

/** The bucket with this very extreme, of the newest generation that has it. */
export function placeOf(
  curves: readonly Curve[],
  { name, which, value, first, last }: Pick<UnplacedExtreme, "name" | "which" | "value" | "first" | "last">,
): { first: number; last: number } | null {
  for (const curve of curves.toSorted((a, b) => b.generation - a.generation)) {
    if (curve.name !== name) continue;
    const at = curve[which].findIndex((one) => toNumber(one) === value);
    if (at < 0) continue;
    const step = curve.steps[at]!;
    const width = Math.max(1, curve.bucket_steps);
    return { first: Math.max(first, Math.floor(step / width) * width), last: Math.min(last, step) };
  }
  return null;
}
