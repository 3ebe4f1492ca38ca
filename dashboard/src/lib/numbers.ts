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

const THOUSANDS = /^([+-]?[1-9]\d{0,2})((?:,\d{3})+)$/;
const DECIMAL_COMMA = /^([+-]?\d+),(\d+)$/;
const WITH_UNIT = /^([+-]?(?:\d+\.?\d*|\.\d+))\s*([kmg%])$/i;
const UNITS: Record<string, string> = { k: "e3", m: "e6", g: "e9", "%": "e-2" };
const SEVERAL = /^[\d.e+-]+(?:\s*;\s*|\s+)[\d.e+;\s-]+$/i;

/** What to write in place of a text that means no number here, and does elsewhere (`1k`, `10%`, `0,1`, `1,000`, `1; 2`); empty for any other. */
export function numberAdvice(text: string): string {
  const trimmed = text.trim();
  const [, unitless = "", unit = ""] = WITH_UNIT.exec(trimmed) ?? [];
  const [, whole = "", fraction = ""] = DECIMAL_COMMA.exec(trimmed) ?? [];
  if (THOUSANDS.test(trimmed)) return `; write ${trimmed.replaceAll(",", "")}`;
  if (whole) return `; write ${whole}.${fraction}`;
  if (unit) return `; write ${Number(unitless + UNITS[unit.toLowerCase()])}`;
  return SEVERAL.test(trimmed) ? "; separate several numbers by commas" : "";
}

/** Why a value may not stand where a whole number from `least` to `most` is wanted; null where it may, or is left out. */
export function wholeNumberProblem(value: number | string | undefined, least: number, most = Infinity): string | null {
  if (value === undefined || (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most))
    return null;
  return `Must be a whole number ${most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`}`;
}
