/** What one value changes against another, with what a permutation test says of it. Pure. */
import { plural } from "@/lib/format";
import type { Analysis } from "@/lib/types";
import { axisTitle, FIGURES, valueInWords, type FigureSpec } from "./figures";
import { signedPercent } from "./fits";

/** One value instead of another over all pairs that differ in nothing else, or configuration by configuration. */
export const COMPARED_BY = ["values", "pairs"] as const;
export type ComparedBy = (typeof COMPARED_BY)[number];

export interface Comparison {
  id: string;
  label: string;
  figure: string;
  /** Second over first; the median where there are several pairs. */
  ratio: number;
  smallest: number;
  largest: number;
  pairs: number;
  /** Corrected for the number of comparisons; null: too few repeats for a test. */
  p: number | null;
  isDifference: boolean;
  text: string;
}

export function comparisons({ effects, differences, configurations }: Analysis, by: ComparedBy): Comparison[] {
  if (by === "values")
    return effects.map(({ path, first, second, pairs, smallest_ratio: smallest, largest_ratio: largest, ...one }) => ({
      ...tested(one),
      id: JSON.stringify([path, first, second]),
      label: `${titlesOf(path)}: ${valuesInWords(second)} instead of ${valuesInWords(first)}`,
      smallest,
      largest,
      pairs: pairs.length,
    }));
  const labels = new Map(configurations.map(({ index, label }) => [index, label]));
  return differences.map(({ first, second, ...one }) => ({
    ...tested(one),
    id: `${first}/${second}`,
    label: `${labels.get(second)} beside ${labels.get(first)}`,
    smallest: one.ratio,
    largest: one.ratio,
    pairs: 1,
  }));
}

type Tested = Pick<Analysis["differences"][number], "figure" | "ratio" | "p_value" | "is_difference" | "text">;

function tested({ figure, ratio, p_value: p, is_difference: isDifference, text }: Tested) {
  return { figure, ratio, p, isDifference, text };
}

function titlesOf(path: string): string {
  return path.split(", ").map(axisTitle).join(", ");
}

function valuesInWords(value: unknown): string {
  return Array.isArray(value) ? value.map(valueInWords).join(", ") : valueInWords(value);
}

/** The figures that any comparison is made in. */
export function comparedFigures(rows: readonly Comparison[]): FigureSpec[] {
  return FIGURES.filter(({ name }) => rows.some(({ figure }) => figure === name));
}

/** "-19%", "+4%"; from three times on a factor. */
export function changeOf(ratio: number): string {
  return ratio <= 0 || ratio >= 3 ? `${Number(ratio.toPrecision(3))}×` : signedPercent(ratio - 1);
}

export function probabilityOf(p: number | null): string {
  if (p === null) return "not tested";
  return p < 0.001 ? "p < 0.001" : `p = ${Number(p.toPrecision(2))}`;
}

/** How many comparisons there are, how many could be tested, and what came of it. */
export function comparisonsSentence(rows: readonly Comparison[]): string {
  const known = rows.filter(({ p }) => p !== null).length;
  const found = rows.filter(({ isDifference }) => isDifference).length;
  if (known === 0)
    return `${plural(rows.length, "comparison")}, none of which has enough repeats for a test: what is drawn are medians, not differences.`;
  return (
    `${plural(rows.length, "comparison")}, ${known} with enough repeats for a permutation test; ` +
    `${found} shown to be a difference: p under 0.05, corrected for the number of comparisons.`
  );
}
