/** Sentences that say what a chart shows, for people who do not see it and for those in a hurry. Pure. */
import { count, plural } from "@/lib/format";
import type { UnplacedExtreme } from "./api/exactStep";
import { labelsOf, type Line } from "./lines";
import { withoutUnit, withUnit } from "./units";

/** The newest value of the first label that has any, and its extremes; of every label, where `all` are meant. */
export function summarize(lines: readonly Line[], all = false, exact: ExactSteps = new Map()): string {
  const told = toldLabels(lines, all);
  if (told.length === 0) return "Nothing reported yet.";
  return told
    .map(
      (label) =>
        `${all ? `${label}: ` : ""}${sentenceOf(
          lines.filter((line) => line.label === label),
          exact,
        )}`,
    )
    .join(" ");
}

function toldLabels(lines: readonly Line[], all: boolean): string[] {
  const found = labelsOf(lines).filter((label) => lines.some((line) => line.label === label && line.steps.length > 0));
  return all ? found : found.slice(0, 1);
}

/** The steps of extremes inside their buckets, by `extremeKey`. */
export type ExactSteps = ReadonlyMap<string, number>;

export function extremeKey({ jobId, name, rank, which, value, first, last }: UnplacedExtreme): string {
  return [jobId, name, rank, which, value, first, last].join("|");
}

/** The extremes that the sentence tells, and whose step their buckets do not. */
export function unplacedExtremes(lines: readonly Line[], all: boolean): UnplacedExtreme[] {
  return toldLabels(lines, all).flatMap((label) => {
    const mine = lines.filter((line) => line.label === label);
    const [least, most] = [extreme(mine, "minimum"), extreme(mine, "maximum")];
    if (least === null || most === null || least.value === most.value) return [];
    return [unplaced(least, "minimum"), unplaced(most, "maximum")].filter((one) => one !== null);
  });
}

/** Asked within its whole bucket: as the newest one grows, the question stays the same. */
function unplaced(found: Extreme, which: "minimum" | "maximum"): UnplacedExtreme | null {
  const { line, at, value } = found;
  if (line.source === undefined || isKnown(found)) return null;
  const { first } = bucketOf(line, at);
  return { ...line.source, which, value, first, last: first + line.bucketSteps - 1 };
}

/** Whether it was at the last step of its bucket: in one of a single step, and where it is the newest value. */
function isKnown({ line, at, value }: Extreme): boolean {
  const { first, last } = bucketOf(line, at);
  return first === last || (at === line.steps.length - 1 && value === line.value[at]);
}

/** How many of the values have no place on a logarithmic scale; null where all of them have one. */
export function tellUnplaced(lines: readonly Line[]): string | null {
  const unplaced = lines.flatMap(({ value }) => value).filter((value) => Number.isFinite(value) && value <= 0).length;
  if (unplaced === 0) return null;
  return `${plural(unplaced, "value")} at or below 0 ${unplaced === 1 ? "is" : "are"} not shown.`;
}

function sentenceOf(lines: readonly Line[], exact: ExactSteps): string {
  const newest = lines.findLast(({ steps }) => steps.length > 0)!;
  const now = `${withUnit(newest.value.at(-1)!, newest.unit)} at step ${count(newest.steps.at(-1))}.`;
  const [least, most] = [extreme(lines, "minimum"), extreme(lines, "maximum")];
  const nans = tellNans(lines);
  if (least === null || most === null || least.value === most.value) return `${now}${nans}`;
  return `${now} Min ${placed(least, "minimum", exact)}, max ${placed(most, "maximum", exact)}.${nans}`;
}

function tellNans(lines: readonly Line[]): string {
  const nans = lines.flatMap((line) => line.nans).reduce((sum, each) => sum + each, 0);
  return nans === 0 ? "" : ` ${plural(nans, "value")} ${nans === 1 ? "is" : "are"} NaN.`;
}

interface Extreme {
  line: Line;
  at: number;
  value: number;
}

/** The first bucket with the lowest, or highest, finite value. */
function extreme(lines: readonly Line[], which: "minimum" | "maximum"): Extreme | null {
  let found: Extreme | null = null;
  for (const line of lines)
    line[which].forEach((value, at) => {
      if (!Number.isFinite(value)) return;
      if (found === null || (which === "minimum" ? value < found.value : value > found.value))
        found = { line, at, value };
    });
  return found;
}

/** A bucket of several steps does not tell which of them had its extreme. */
function placed(found: Extreme, which: "minimum" | "maximum", exact: ExactSteps): string {
  const { line, at, value } = found;
  const { first, last } = bucketOf(line, at);
  const asked = unplaced(found, which);
  const step = isKnown(found) ? last : asked ? exact.get(extremeKey(asked)) : undefined;
  const where = step === undefined ? `in steps ${count(first)}–${count(last)}` : `at step ${count(step)}`;
  return `${withoutUnit(value, line.unit)} ${where}`;
}

function bucketOf({ steps, bucketSteps }: Line, at: number): { first: number; last: number } {
  const last = steps[at]!;
  return { first: Math.floor(last / bucketSteps) * bucketSteps, last };
}
