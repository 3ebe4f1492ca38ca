/** A heat map on a canvas: a pixel of the picture per cell, scaled to the width that there is. */
import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState, type PointerEvent } from "react";
import { count, si } from "@/lib/format";
import { cell, colourRange, ranksOf, stepsOf, strengthOf, type ColourRange, type RankGrid } from "../heatmap";
import type { StepRange } from "../stepRange";
import { withUnit, type Unit } from "../units";
import classes from "./Metrics.module.css";

interface Props {
  grid: RankGrid;
  unit: Unit;
  sentence: string;
  nodeOf(rank: number): string | null;
  onRow(row: number): void;
  onZoom(range: StepRange | null): void;
}

interface Place {
  row: number;
  column: number;
  /** Share of the width. */
  x: number;
}

const LEAST_HEIGHT = 72;
const MOST_HEIGHT = 512;
const ROW_HEIGHT = 14;
/** Below it a press is a click on a row. */
const SMALLEST_DRAG = 0.01;

export function HeatmapCanvas({ grid, unit, sentence, nodeOf, onRow, onZoom }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useComputedColorScheme();
  const [pointed, setPointed] = useState<Place | null>(null);
  const [pressed, setPressed] = useState<Place | null>(null);
  const { low, high } = colourRange(grid);
  const lowIsBad = grid.worst === "lowest";
  useEffect(() => {
    if (canvas.current) paint(canvas.current, grid, { low, high });
  }, [grid, low, high, scheme]);
  const release = (event: PointerEvent) => {
    const end = placeOf(event, grid);
    setPressed(null);
    if (!pressed) return;
    if (Math.abs(end.x - pressed.x) < SMALLEST_DRAG) return onRow(end.row);
    const [first, last] = [pressed, end].sort((a, b) => a.x - b.x);
    onZoom({ from: stepsOf(grid, first!.column).from, to: stepsOf(grid, last!.column).to });
  };
  const height = Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, grid.rows * ROW_HEIGHT));
  return (
    <figure className={classes.heatmap}>
      <div className={classes.rows} aria-hidden>
        <span>{ranksOf(grid, 0)}</span>
        {grid.rows > 1 && <span>{ranksOf(grid, grid.rows - 1)}</span>}
      </div>
      <div className={classes.cells} style={{ height }}>
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Heat map: ${sentence}`}
          width={grid.columns}
          height={grid.rows}
          data-chart
          onPointerMove={(event) => setPointed(placeOf(event, grid))}
          onPointerLeave={() => setPointed(null)}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            setPressed(placeOf(event, grid));
          }}
          onPointerUp={release}
          onPointerCancel={() => setPressed(null)}
          onDoubleClick={() => onZoom(null)}
        />
        {pressed && pointed && (
          <div
            className={classes.selected}
            style={{
              left: `${Math.min(pressed.x, pointed.x) * 100}%`,
              width: `${Math.abs(pressed.x - pointed.x) * 100}%`,
            }}
          />
        )}
      </div>
      <div className={classes.steps} aria-hidden>
        <span>{si(grid.firstStep)}</span>
        <span>step</span>
        <span>{si(grid.lastStep)}</span>
      </div>
      <figcaption className={classes.scale}>
        <span>{withUnit(lowIsBad ? high : low, unit)}</span>
        <span className={classes.ramp} aria-hidden />
        <span>{lowIsBad ? `${withUnit(low, unit)} and less` : `${withUnit(high, unit)} and more`}</span>
        <output className={classes.pointed}>{pointed && textOf(grid, pointed, unit, nodeOf)}</output>
      </figcaption>
    </figure>
  );
}

function placeOf(event: PointerEvent, grid: RankGrid): Place {
  const { left, top, width, height } = event.currentTarget.getBoundingClientRect();
  const x = clamp((event.clientX - left) / width, 1);
  const y = clamp((event.clientY - top) / height, 1);
  return {
    x,
    row: Math.floor(clamp(y * grid.rows, grid.rows - 1)),
    column: Math.floor(clamp(x * grid.columns, grid.columns - 1)),
  };
}

function clamp(value: number, most: number): number {
  return Math.min(most, Math.max(0, value));
}

function textOf(grid: RankGrid, { row, column }: Place, unit: Unit, nodeOf: (rank: number) => string | null): string {
  const value = cell(grid, row, column);
  const { from, to } = stepsOf(grid, column);
  const node = grid.ranksPerRow === 1 ? nodeOf(row) : null;
  const where = `${grid.ranksPerRow === 1 ? "rank" : "ranks"} ${ranksOf(grid, row)}${node === null ? "" : ` on ${node}`}`;
  const when = from === to ? `step ${count(from)}` : `steps ${count(from)}–${count(to)}`;
  return `${where}, ${when}: ${Number.isNaN(value) ? "no value" : withUnit(value, unit)}`;
}

type Colour = readonly [number, number, number];

/** Three colours of the theme, from pale to strong: their lightness only falls (light theme) or only rises (dark theme). */
const RAMP = ["--track", "--series-2", "--bad-text"];

function paint(canvas: HTMLCanvasElement, grid: RankGrid, range: ColourRange): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(canvas);
  const ramp = RAMP.map((token) => colourOf(style.getPropertyValue(token)));
  const image = context.createImageData(grid.columns, grid.rows);
  grid.cells.forEach((value, index) => {
    if (Number.isNaN(value)) return; // stays transparent
    const [red, green, blue] = mixed(ramp, strengthOf(grid, range, value));
    image.data.set([red, green, blue, 255], index * 4);
  });
  context.putImageData(image, 0, 0);
}

function colourOf(text: string): Colour {
  const value = parseInt(text.trim().slice(1), 16) || 0x888888;
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function mixed(ramp: readonly Colour[], share: number): Colour {
  const at = share * (ramp.length - 1);
  const index = Math.min(ramp.length - 2, Math.floor(at));
  const [one, other] = [ramp[index]!, ramp[index + 1]!];
  const part = at - index;
  return [0, 1, 2].map((channel) =>
    Math.round(one[channel]! + (other[channel]! - one[channel]!) * part),
  ) as unknown as Colour;
}
