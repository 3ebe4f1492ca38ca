/** One figure over two of the axes that vary. Pure. */
import type { Configuration } from "@/lib/types";
import { valuesOf } from "./fields";
import { axisTitle, valueInWords, type FigureSpec } from "./figures";

export interface HeatCell {
  x: unknown;
  y: unknown;
  /** The median of the configurations here; null: none has the figure. */
  value: number | null;
  /** How many configurations are here. */
  count: number;
}

export interface HeatGrid {
  xs: readonly unknown[];
  ys: readonly unknown[];
  cells: readonly HeatCell[];
}

export function heatGrid(configurations: readonly Configuration[], x: string, y: string, figure: FigureSpec): HeatGrid {
  const xs = valuesOf(configurations, x);
  const ys = valuesOf(configurations, y);
  const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
  const cells = ys.flatMap((atY) =>
    xs.map((atX) => {
      const here = configurations.filter(({ values }) => same(values[x], atX) && same(values[y], atY));
      const values = here.map((one) => one[figure.name]?.value ?? null).filter((value) => value !== null);
      return { x: atX, y: atY, value: median(values), count: here.length };
    }),
  );
  return { xs, ys, cells };
}

function median(values: readonly number[]): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** From 0 for the worst value to 1 for the best; 0.5 where all are the same. */
export function strength(value: number, cells: readonly HeatCell[], better: "less" | "more"): number {
  const values = cells.map((cell) => cell.value).filter((known) => known !== null);
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (high === low) return 0.5;
  return better === "more" ? (value - low) / (high - low) : (high - value) / (high - low);
}

export function heatSentence(
  { cells }: HeatGrid,
  x: string,
  y: string,
  figure: FigureSpec,
  title: string,
  better: "less" | "more",
): string {
  const known = cells.filter((cell): cell is HeatCell & { value: number } => cell.value !== null);
  if (known.length === 0) return `No configuration has ${title.toLowerCase()} yet.`;
  const best = known.reduce((a, b) => ((better === "more" ? b.value > a.value : b.value < a.value) ? b : a));
  const where = `${axisTitle(x).toLowerCase()} ${valueInWords(best.x)} and ${axisTitle(y).toLowerCase()} ${valueInWords(best.y)}`;
  const missing = cells.length - known.length;
  return `${title} is best at ${where}: ${figure.write(best.value)}.${missing > 0 ? ` Hatched: ${missing} of ${cells.length} not measured.` : ""}`;
}
