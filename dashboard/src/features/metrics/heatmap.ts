/** The arithmetic of a heat map: its cells, the mean of each row, the band over the ranks, its colours' range. Pure. */
import { count, percent, plural } from "@/lib/format";
import type { Heatmap } from "@/lib/types";
import { madeLine, type Line } from "./lines";
import { worstOf, type Worst } from "./measures";
import { withUnit, type Unit } from "./units";

/** One metric of every rank over steps. Row `r` has the ranks from `r * ranksPerRow` on, column `c` the steps from `firstStep + c * bucketSteps` on. */
export interface RankGrid {
  readonly name: string;
  /** As the coordinator spells it. */
  readonly unit: string;
  readonly ranks: number;
  readonly ranksPerRow: number;
  readonly rows: number;
  readonly columns: number;
  readonly firstStep: number;
  readonly lastStep: number;
  readonly bucketSteps: number;
  readonly worst: Worst;
  /** Row by row; NaN where there is no value. */
  readonly cells: Float32Array;
}

export function decode(map: Heatmap): RankGrid {
  const bytes = Uint8Array.from(atob(map.cells), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const cells = Float32Array.from({ length: map.rows * map.columns }, (_, index) => view.getFloat32(index * 4, true));
  return {
    name: map.name,
    unit: map.unit,
    ranks: map.ranks,
    ranksPerRow: map.ranks_per_row,
    rows: map.rows,
    columns: map.columns,
    firstStep: map.first_step ?? 0,
    lastStep: map.last_step ?? 0,
    bucketSteps: map.bucket_steps,
    worst: worstOf(map.name),
    cells,
  };
}

export function cell(grid: RankGrid, row: number, column: number): number {
  return grid.cells[row * grid.columns + column]!;
}

/** "5", or "8–15" where a row has several ranks. */
export function ranksOf(grid: RankGrid, row: number): string {
  const first = row * grid.ranksPerRow;
  const last = Math.min(grid.ranks, first + grid.ranksPerRow) - 1;
  return first === last ? count(first) : `${count(first)}–${count(last)}`;
}

export function stepsOf(grid: RankGrid, column: number): { from: number; to: number } {
  const from = grid.firstStep + column * grid.bucketSteps;
  return { from, to: from + grid.bucketSteps - 1 };
}

export interface RowSummary {
  row: number;
  mean: number;
  /** Its cell at the bad end of the values. */
  worst: number;
  /** The mean over the median of all rows' means; NaN where that is zero. */
  ratio: number;
}

/** The rows that have values, in order. */
export function summarizeRows(grid: RankGrid): RowSummary[] {
  const found: Omit<RowSummary, "ratio">[] = [];
  const worst = grid.worst === "lowest" ? Math.min : Math.max;
  for (let row = 0; row < grid.rows; row += 1) {
    const values = grid.cells
      .subarray(row * grid.columns, (row + 1) * grid.columns)
      .filter((value) => !Number.isNaN(value));
    if (values.length === 0) continue;
    const sum = values.reduce((total, value) => total + value, 0);
    found.push({ row, mean: sum / values.length, worst: worst(...values) });
  }
  const middle = median(found.map(({ mean }) => mean));
  return found.map((each) => ({ ...each, ratio: middle === 0 ? NaN : each.mean / middle }));
}

export interface ColourRange {
  low: number;
  high: number;
}

/** From the first to the 99th percentile: one slow rank of a thousand, or one slow step, is beyond it and has the full colour. */
export function colourRange(grid: RankGrid): ColourRange {
  const values = grid.cells.filter((value) => !Number.isNaN(value)).sort();
  if (values.length === 0) return { low: 0, high: 1 };
  const at = (share: number) => values[Math.min(values.length - 1, Math.floor(share * values.length))]!;
  const middle = at(0.5);
  const low = Math.min(at(0.01), middle - Math.abs(middle) * LEAST_SPREAD);
  const far = Math.max(at(0.99), middle + Math.abs(middle) * LEAST_SPREAD);
  return { low, high: far > low ? far : low + 1 };
}

/** How strong the colour of a value is, from 0 to 1: the strongest stands for the bad end of the values. */
export function strengthOf({ worst }: Pick<RankGrid, "worst">, { low, high }: ColourRange, value: number): number {
  const share = Math.min(1, Math.max(0, (value - low) / (high - low)));
  return worst === "lowest" ? 1 - share : share;
}

/** Differences of less than a quarter of the median are no colours of their own. */
const LEAST_SPREAD = 0.25;

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return NaN;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** What the map shows at a glance, in words. `nodeOf`: where a rank runs, if that is known. */
export function sentenceOf(
  grid: RankGrid,
  rows: readonly RowSummary[],
  unit: Unit,
  nodeOf: (rank: number) => string | null,
): string {
  if (rows.length === 0) return "No rank has reported a value in these steps.";
  const alone = grid.ranksPerRow === 1;
  const top = worstRow(grid, rows)!;
  if (rows.length === 1 && grid.rows > 1)
    return `Nothing to compare: only ${alone ? "rank" : "ranks"} ${ranksOf(grid, top.row)} ${alone ? "has" : "have"} values in these steps.${top.row === 0 ? OF_THE_JOB : ""}`;
  const middle = median(rows.map(({ mean }) => mean));
  const compared = rows.length === grid.rows ? grid.ranks : rows.length * grid.ranksPerRow;
  const among = `the median of ${plural(compared, "rank")}, ${withUnit(middle, unit)}`;
  const low = grid.worst === "lowest";
  if (!(distance(grid, top) > NOTABLE))
    return `No rank stands out: the ${grid.worst} mean is ${percent(distance(grid, top), 1)} ${low ? "below" : "above"} ${among}.`;
  const node = alone ? nodeOf(top.row) : null;
  const name = `${alone ? "Rank" : "Ranks"} ${ranksOf(grid, top.row)}${node === null ? "" : ` on ${node}`}`;
  return `${name} ${alone ? "has" : "have"} the ${grid.worst} mean: ${withUnit(top.mean, unit)}, ${low ? ratioOf(top.ratio) : times(top.ratio)} ${among}.`;
}

/** The row at the bad end of the values; null where there is none. */
export function worstRow({ worst }: RankGrid, rows: readonly RowSummary[]): RowSummary | null {
  const sign = worst === "lowest" ? -1 : 1;
  return rows.reduce<RowSummary | null>(
    (best, each) => (best && sign * (each.mean - best.mean) <= 0 ? best : each),
    null,
  );
}

/** How far a row is from the median towards the bad end. Of a metric whose median is zero nothing is a share. */
function distance({ worst }: RankGrid, { ratio }: RowSummary): number {
  return Number.isNaN(ratio) ? 0 : Math.max(0, worst === "lowest" ? 1 - ratio : ratio - 1);
}

function ratioOf(ratio: number): string {
  return `${percent(ratio, 0)} of`;
}

const NOTABLE = 0.1;
/** Loss, throughput and norms are of all ranks together. */
const OF_THE_JOB = " What is measured of the whole job, rank 0 reports.";

function times(ratio: number): string {
  return `${ratio < 10 ? ratio.toFixed(1) : count(Math.round(ratio))} times`;
}

/** The band from the lowest to the highest rank with their mean, and the lines of some rows: as `Line`s, so that they are drawn as curves are. */
export function bandLines(grid: RankGrid, rows: readonly number[], unit: Unit): Line[] {
  const columns = Array.from({ length: grid.columns }, (_, column) => columnOf(grid, column)).filter(
    ({ values }) => values.length > 0,
  );
  const steps = columns.map(({ step }) => step);
  const means = columns.map(({ values }) => values.reduce((sum, value) => sum + value, 0) / values.length);
  const band: Line = {
    ...madeLine({ label: BAND, color: 0, unit }, steps, means),
    bucketSteps: 2, // drawn with its extremes
    minimum: columns.map(({ values }) => Math.min(...values)),
    maximum: columns.map(({ values }) => Math.max(...values)),
  };
  return [band, ...rows.map((row, index) => rowLine(grid, row, index + 1, unit))];
}

export const BAND = "mean of all ranks";

/** Each cell over the median of its column. A stall of all ranks is pale in it, a rank that is slower than the others is not, whatever a step takes. */
export function overMedian(grid: RankGrid): RankGrid {
  const medians = Array.from({ length: grid.columns }, (_, column) => median(columnOf(grid, column).values));
  const cells = grid.cells.map((value, index) => {
    const middle = medians[index % grid.columns]!;
    return middle === 0 ? NaN : value / middle;
  });
  return { ...grid, cells };
}

function columnOf(grid: RankGrid, column: number): { step: number; values: number[] } {
  const values = [];
  for (let row = 0; row < grid.rows; row += 1) values.push(cell(grid, row, column));
  return { step: stepsOf(grid, column).from, values: values.filter((value) => !Number.isNaN(value)) };
}

function rowLine(grid: RankGrid, row: number, color: number, unit: Unit): Line {
  const steps: number[] = [];
  const values: number[] = [];
  for (let column = 0; column < grid.columns; column += 1) {
    const value = cell(grid, row, column);
    if (Number.isNaN(value)) continue;
    steps.push(stepsOf(grid, column).from);
    values.push(value);
  }
  return madeLine({ label: `rank ${ranksOf(grid, row)}`, color, unit }, steps, values);
}
