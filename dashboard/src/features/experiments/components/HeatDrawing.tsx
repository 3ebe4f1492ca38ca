import { Chart } from "../charts/Chart";
import { axisTitle, valueInWords, type FigureSpec } from "../figures";
import { strength, type HeatGrid } from "../heat";
import classes from "./Charts.module.css";

const ROW = 34;
const LETTER = 6.1;
const LEAST_LEFT = 60;
const FOOT = 42;
const NARROWEST_CELL = 58;

interface DrawnProps {
  grid: HeatGrid;
  x: string;
  y: string;
  figure: FigureSpec;
  better: "less" | "more";
  label: string;
}

/** A cell for each pair of values: the better, the stronger; hatched where nothing was measured. */
export function HeatDrawing({ grid, x, y, figure, better, label }: DrawnProps) {
  const { xs, ys, cells } = grid;
  const names = [axisTitle(x), axisTitle(y), ...ys.map(valueInWords)];
  const left = Math.max(LEAST_LEFT, ...names.map((name) => name.length * LETTER + 24));
  const foot = ys.length * ROW + 22;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
    <div className={classes.scroll} role="region" aria-label="Heat map, scrollable" tabIndex={0}>
      <div style={{ minWidth: left + xs.length * NARROWEST_CELL }}>
        <Chart label={label} height={foot + FOOT - 14}>
          {(width) => {
            const cell = (width - left - 14) / xs.length;
            return (
              <>
                <Hatching />
                <text className={classes.corner} x={left - 10} y={12} textAnchor="end">
                  {axisTitle(y)}
                </text>
                {ys.map((value, row) => (
                  <text
                    key={row}
                    className={classes.tick}
                    x={left - 10}
                    y={20 + row * ROW + ROW / 2}
                    dy="0.32em"
                    textAnchor="end"
                  >
                    {valueInWords(value)}
                  </text>
                ))}
                {cells.map((one, index) => (
                  <Cell
                    key={index}
                    left={left + (index % xs.length) * cell}
                    top={20 + Math.floor(index / xs.length) * ROW}
                    width={cell - 2}
                    share={one.value === null ? null : strength(one.value, cells, better)}
                    text={one.value === null ? "" : figure.write(one.value)}
                  />
                ))}
                {xs.map((value, column) => (
                  <text
                    key={column}
                    className={classes.tick}
                    x={left + (column + 0.5) * cell}
                    y={foot + 12}
                    textAnchor="middle"
                  >
                    {valueInWords(value)}
                  </text>
                ))}
                <text className={classes.corner} x={left - 10} y={foot + 12} textAnchor="end">
                  {axisTitle(x)}
                </text>
              </>
            );
          }}
        </Chart>
      </div>
    </div>
  );
}

function Hatching() {
  return (
    <defs>
      <pattern id="not-measured" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <line className={classes.hatch} y2="6" />
      </pattern>
    </defs>
  );
}

interface CellProps {
  left: number;
  top: number;
  width: number;
  /** 1 is the best; null: not measured. */
  share: number | null;
  text: string;
}

function Cell({ left, top, width, share, text }: CellProps) {
  const strong = share === null ? 0 : Math.round(8 + share * 52);
  return (
    <g transform={`translate(${left.toFixed(1)} ${top})`}>
      <rect
        width={width}
        height={ROW - 2}
        rx={3}
        className={share === null ? classes.missing : undefined}
        style={share === null ? undefined : { fill: `color-mix(in srgb, var(--accent) ${strong}%, var(--surface))` }}
      />
      <text
        className={classes.cellText}
        data-best={share === 1 || undefined}
        x={width / 2}
        y={(ROW - 2) / 2}
        dy="0.34em"
        textAnchor="middle"
      >
        {text}
      </text>
    </g>
  );
}
