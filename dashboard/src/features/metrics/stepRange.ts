/** Which steps the charts show: what was typed for it, and how far the data goes. Pure. */
import { count } from "@/lib/format";
import { numberOf } from "@/lib/numbers";

export interface StepRange {
  from: number;
  to: number;
}

/** The first and the last step of any of the curves; null where none has a step. */
export function extentOf(curves: Iterable<{ readonly steps: readonly number[] }>): StepRange | null {
  let [from, to] = [Infinity, -Infinity];
  for (const { steps } of curves) {
    from = Math.min(from, steps[0] ?? Infinity);
    to = Math.max(to, steps.at(-1) ?? -Infinity);
  }
  return from <= to ? { from, to } : null;
}

/** The part of a range in which there is data; the range itself where that is less than two steps. */
export function within(range: StepRange | null, extent: StepRange | null): StepRange | null {
  if (range === null || extent === null) return range;
  const part = { from: Math.max(range.from, extent.from), to: Math.min(range.to, extent.to) };
  return part.from < part.to ? part : range;
}

/** What is in the two fields. */
export interface TypedRange {
  from: string;
  to: string;
}

/**
 * The range that two texts mean, null for the whole run, or a sentence on why they mean none.
 *
 * Without a first step it begins at 0, and without a last one it ends at `newest`, which is undefined where it is not known.
 */
export function readRange(typed: TypedRange, newest: number | undefined): StepRange | null | string {
  const [from, to] = [numberOf(typed.from), numberOf(typed.to)];
  if (from === undefined && to === undefined) return null;
  if (!isStep(from ?? 0)) return "From step must be a whole number of at least 0.";
  if (!isStep(to ?? 0)) return "To step must be a whole number of at least 0.";
  const range = { from: (from ?? 0) as number, to: (to ?? newest) as number | undefined };
  if (range.to === undefined) return "Enter a To step as well.";
  if (range.from < range.to) return { from: range.from, to: range.to };
  return to === undefined
    ? `From step must be below ${count(range.to)}, the newest step.`
    : "From step must be below To step.";
}

function isStep(value: number | string): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}
