/** The words for a comparison. Pure; the verdict itself, and the sentence to quote, are the coordinator's. */
import type { Tone } from "@/components/ui/StateBadge";
import { count } from "@/lib/format";
import type { AnyFloat, Comparison, MetricComparison } from "@/lib/types";

const TONES: Partial<Record<Comparison["verdict"], Tone>> = {
  same: "good",
  same_so_far: "good",
  close: "warn",
  diverged: "warn",
};

export function seen({ verdict, same_run: same }: Comparison): { tone: Tone; same: boolean } {
  return { tone: TONES[verdict] ?? "neutral", same };
}

const MOST_DIGITS = 17;

/** Values that differ, with the digits that tell them apart. */
export function apart(values: readonly AnyFloat[]): string {
  for (let digits = 4; digits < MOST_DIGITS; digits++) {
    const short = values.map((value) =>
      typeof value === "number" ? String(Number(value.toPrecision(digits))) : value,
    );
    if (new Set(short).size === values.length) return short.join(" and ");
  }
  return values.join(" and ");
}

export function firstDifference({ first_difference: first }: MetricComparison): string {
  return first === null ? "none" : `step ${count(first.step)}: ${apart(first.values)}`;
}

/** "2, then 1, then 2". */
export function worldsOf(sizes: readonly number[]): string {
  return sizes.length === 0 ? "–" : sizes.join(", then ");
}

/** A hash, short enough for a line. */
export function shortHash(hash: string): string {
  return hash.slice(0, 12);
}
