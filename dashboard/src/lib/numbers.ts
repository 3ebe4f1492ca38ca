/** Numbers as people type them. */

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** The number that a text means (`.0003`, `3e-4`, `1e4`), the text itself where it means none, undefined where it is empty. */
export function numberOf(text: string): number | string | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const number = NUMBER.test(trimmed) ? Number(trimmed) : NaN;
  return Number.isFinite(number) ? number : trimmed;
}

/** Why a value may not stand where a whole number from `least` to `most` is wanted; null where it may, or is left out. */
export function wholeNumberProblem(value: number | string | undefined, least: number, most = Infinity): string | null {
  if (value === undefined || (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most))
    return null;
  return `Must be a whole number ${most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`}`;
}
