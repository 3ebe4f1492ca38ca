/** Numbers as people type them. */

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** Between digits, as in `1_000`. */
const SEPARATOR = /(?<=\d)_(?=\d)/g;
/** As papers print it: `3e−4`. */
const MINUS_SIGN = /\u2212/g;

/**
 * The number that a text means (`.0003`, `3e-4`, `1e4`, `1_000`), the text itself where it means none, undefined where it is empty.
 *
 * A whole number with more digits than a number holds exactly stays a text: read as a number it would become its neighbour.
 */
export function numberOf(text: string): number | string | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const plain = trimmed.replace(SEPARATOR, "").replace(MINUS_SIGN, "-");
  const number = NUMBER.test(plain) ? Number(plain) : NaN;
  const isChanged = /^[+-]?\d+$/.test(plain) && !Number.isSafeInteger(number);
  return Number.isFinite(number) && !isChanged ? number : trimmed;
}

/** The number that a text spells and that no number holds: with too many digits, or too large. Null for any other text. */
export function oversized(text: string): number | null {
  const plain = text.trim().replace(SEPARATOR, "").replace(MINUS_SIGN, "-");
  if (!NUMBER.test(plain)) return null;
  const number = Number(plain);
  return Number.isFinite(number) && (!/^[+-]?\d+$/.test(plain) || Number.isSafeInteger(number)) ? null : number;
}

/** Why a value may not stand where a whole number from `least` to `most` is wanted; null where it may, or is left out. */
export function wholeNumberProblem(value: number | string | undefined, least: number, most = Infinity): string | null {
  if (value === undefined || (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most))
    return null;
  return `Must be a whole number ${most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`}`;
}
