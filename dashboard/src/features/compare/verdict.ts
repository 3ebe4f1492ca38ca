/** The words for a comparison. Pure; the verdict itself, and the sentence to quote, are the coordinator's. */
import type { Tone } from "@/components/ui/StateBadge";
import { count } from "@/lib/format";
import type { AnyFloat, BundleChanges, Comparison, MetricComparison, SpecDifference } from "@/lib/types";

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
/** The value of a field that a spec has not. */
const ABSENT = "absent";

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

/** The bundles of two jobs whose code differs; null where it is the same, or one of them has none. */
export function bundlesOf(differences: readonly SpecDifference[]): { since: string; bundle: string } | null {
  const values = differences.find(({ path }) => path === "environment.code.bundle")?.values;
  const [since, bundle] = values?.map((value) => value.replaceAll('"', "")) ?? [];
  return since && bundle && since !== ABSENT && bundle !== ABSENT ? { since, bundle } : null;
}

export interface ChangedFile {
  path: string;
  how: "added" | "removed" | "changed";
}

/** The files of all three lists, by their paths. */
export function changedFiles(changes: BundleChanges): ChangedFile[] {
  const kinds = ["added", "removed", "changed"] as const;
  const files = kinds.flatMap((how) => changes[how].map((path) => ({ path, how })));
  return files.sort((one, other) => (one.path < other.path ? -1 : 1));
}
