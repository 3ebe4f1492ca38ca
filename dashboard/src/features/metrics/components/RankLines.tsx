import { SegmentedControl, useComputedColorScheme } from "@mantine/core";
import { Keyed } from "@/components/ui/StackedBar";
import { seriesToken } from "@/lib/series";
import { bandLines, ranksOf, worstRow, type RankGrid, type RowSummary } from "../heatmap";
import { PLAIN } from "../lines";
import { baseOptions, lineData, lineSeries, readPalette, wholeSteps } from "../plot";
import type { StepRange } from "../stepRange";
import type { Unit } from "../units";
import classes from "./Metrics.module.css";
import { Plot } from "./Plot";

/** Which ranks have a line of their own above the band. */
export type Lines = "slowest" | "nodes" | "all";

interface Props {
  grid: RankGrid;
  rows: readonly RowSummary[];
  unit: Unit;
  lines: Lines;
  /** Rows that were clicked on in the map: they have a line whatever `lines` says. */
  picked: readonly number[];
  nodeOf(rank: number): string | null;
  onLines(lines: Lines): void;
  onZoom(range: StepRange | null): void;
}

const HEIGHT = 190;
/** More lines than this hide each other; the band and the map show them all. */
const MOST_LINES = 16;

/** The band from the lowest to the highest rank, their mean, and the lines of chosen ranks. */
export function RankLines({ grid, rows, unit, lines, picked, nodeOf, onLines, onZoom }: Props) {
  const scheme = useComputedColorScheme();
  const shown = [...new Set([...chosen(grid, rows, lines, nodeOf), ...picked])].slice(0, MOST_LINES);
  const drawn = bandLines(grid, shown, unit);
  const names = drawn.map(({ label }) => label);
  return (
    <>
      <div className={classes.lines}>
        <SegmentedControl
          size="xs"
          aria-label="Ranks with a line"
          value={lines}
          data={[
            { value: "slowest", label: grid.worst === "lowest" ? "Lowest rank" : "Highest rank" },
            { value: "nodes", label: "One per node" },
            { value: "all", label: `All ranks${grid.rows > MOST_LINES ? `, ${MOST_LINES} lines` : ""}` },
          ]}
          onChange={(value) => onLines(value as Lines)}
        />
        <span className={classes.legend}>
          {names.map((name, index) => (
            <Keyed key={name} color={seriesToken(index)}>
              {name}
            </Keyed>
          ))}
        </span>
      </div>
      <Plot
        structure={[grid.name, scheme, unit, names.join(), grid.firstStep, grid.lastStep, signature(grid)].join("|")}
        height={HEIGHT}
        build={(root) => {
          const palette = readPalette(root);
          return {
            options: {
              ...baseOptions(palette, { log: false, units: [unit] }),
              ...lineSeries(drawn, palette, PLAIN),
            },
          };
        }}
        data={() => lineData(drawn, PLAIN)}
        onZoom={(range) => onZoom(range && wholeSteps(range))}
        title="Ranks"
        sentence={`${names.join(", ")}; the band goes from the lowest to the highest rank`}
      />
    </>
  );
}

/** Changes with the newest values, so that a chart of a running job is drawn anew. */
function signature(grid: RankGrid): string {
  return Array.from({ length: grid.rows }, (_, row) => grid.cells[(row + 1) * grid.columns - 1]).join();
}

function chosen(
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
