import { SERIES_COLORS } from "@/lib/series";
import { ranksOf, worstRow, type RankGrid, type RowSummary } from "./heatmap";

/** Which ranks have a line of their own above the band. */
export const LINES = ["slowest", "nodes", "all"] as const;
export type Lines = (typeof LINES)[number];

/** As many as there are colours to tell them apart; the band and the map show all ranks. */
export const MOST_LINES = SERIES_COLORS;

export interface ShownRows {
  rows: number[];
  /** Why some of the choice have no line; null: all of them have one. */
  leftOut: string | null;
}

/**
 * The rows of the map that get a line: those that were `picked` in it, the newest first, then those of the choice, up to MOST_LINES. Picked rows come
 * first because a user who clicks on one wants to see it, whatever was drawn before.
 */
export function shownRows(chosen: readonly number[], picked: readonly number[], lines: Lines): ShownRows {
  const wanted = [...new Set([...[...picked].reverse(), ...chosen])];
  const rows = wanted.slice(0, MOST_LINES);
  if (rows.length === wanted.length) return { rows, leftOut: null };
  const of = lines === "nodes" ? `${chosen.length} nodes` : `${wanted.length} ranks`;
  return { rows, leftOut: `${rows.length} lines for ${of}: click on a row of the map to have its line` };
}

/** The rows of a choice; for "nodes" the first row of each. */
export function chosenRows(
  grid: RankGrid,
  rows: readonly RowSummary[],
  lines: Lines,
  nodeOf: (rank: number) => string | null,
): number[] {
  if (lines === "slowest") {
    const top = worstRow(grid, rows);
    return top ? [top.row] : [];
  }
  if (lines === "all") return rows.map(({ row }) => row);
  const firstOf = new Map<string, number>();
  for (const { row } of rows) {
    const node = nodeOf(row * grid.ranksPerRow) ?? `rank ${ranksOf(grid, row)}`;
    if (!firstOf.has(node)) firstOf.set(node, row);
  }
  return [...firstOf.values()];
}
