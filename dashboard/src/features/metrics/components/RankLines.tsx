import { SegmentedControl, useComputedColorScheme } from "@mantine/core";
import { Keyed } from "@/components/ui/StackedBar";
import { MEAN_TOKEN, seriesToken } from "@/lib/series";
import { bandLines, type RankGrid, type RowSummary } from "../heatmap";
import { PLAIN } from "../lines";
import { baseOptions, lineData, lineSeries, readPalette, wholeSteps } from "../plot";
import { chosenRows, MOST_LINES, shownRows, type Lines } from "../rankLines";
import type { StepRange } from "../stepRange";
import type { Unit } from "../units";
import classes from "./Metrics.module.css";
import { Plot } from "./Plot";

interface Props {
  grid: RankGrid;
  rows: readonly RowSummary[];
  unit: Unit;
  lines: Lines;
  /** Rows that were clicked on in the map: they have a line whatever `lines` says, before those of the choice. */
  picked: readonly number[];
  nodeOf(rank: number): string | null;
  onLines(lines: Lines): void;
  onZoom(range: StepRange | null): void;
}

const HEIGHT = 190;

/** The band from the lowest to the highest rank, their mean, and the lines of chosen ranks. */
export function RankLines({ grid, rows, unit, lines, picked, nodeOf, onLines, onZoom }: Props) {
  const scheme = useComputedColorScheme();
  const shown = shownRows(chosenRows(grid, rows, lines, nodeOf), picked, lines);
  const drawn = bandLines(grid, shown.rows, unit);
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
            <Keyed key={name} color={index === 0 ? MEAN_TOKEN : seriesToken(index - 1)}>
              {name}
            </Keyed>
          ))}
          {shown.leftOut !== null && <span>{shown.leftOut}</span>}
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
              ...lineSeries(drawn, { ...palette, series: [palette.mean, ...palette.series] }, PLAIN),
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
