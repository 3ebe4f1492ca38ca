/** uPlot options and data from lines: everything about drawing that is not React. */
import uPlot from "uplot";
import { MEAN_TOKEN, SERIES_COLORS, seriesToken } from "@/lib/series";
import { AXIS_WORDS, placeTicks, TIME_INCREMENTS, type Axis } from "./axes";
import { align, type Column } from "./curves";
import type { Bar } from "./exports";
import { peaks } from "./extremes";
import { drawnLines, hasBand, type DrawSettings, type Line } from "./lines";
import type { Mark, Placed } from "./marks";
import { logSplits } from "./ticks";
import { axisOf, type Unit } from "./units";

export interface Range {
  from: number;
  to: number;
}

/** The steps of a range that was dragged over. */
export function wholeSteps({ from, to }: Range): Range {
  return { from: Math.max(0, Math.floor(from)), to: Math.ceil(to) };
}

/** The range of values that a chart shows: a logarithmic scale has no place for a bound of zero or below. */
export function placeableRange(values: Range | null, log: boolean): Range | null {
  return log && values !== null && values.from <= 0 ? null : values;
}

export interface Palette {
  text: string;
  line: string;
  bad: string;
  /** What stands for all lines together: none of theirs. */
  mean: string;
  series: string[];
}

export function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim() || "#888";
  return {
    text: token("--muted"),
    line: token("--line-soft"),
    bad: token("--bad"),
    mean: token(MEAN_TOKEN),
    series: Array.from({ length: SERIES_COLORS }, (_, index) => token(seriesToken(index))),
  };
}

/** #rrggbb with an alpha. */
export function fade(color: string, alpha: number): string {
  return /^#[0-9a-f]{6}$/i.test(color)
    ? `${color}${Math.round(alpha * 255)
        .toString(16)
        .padStart(2, "0")}`
    : color;
}

/** What must be equal for a chart to be updated in place rather than built anew. */
export function structureOf(lines: readonly Line[]): string {
  return lines
    .map((line) => `${line.label}/${line.generation}/${hasBand(line)}/${line.sparse}/${line.dashed}/${line.unit}`)
    .join(" ");
}

/** Columns in the order of `lineSeries`: for each line its maximum and minimum (if it has a band), raw values and smoothed ones. */
export function lineData(lines: readonly Line[], { log, smoothing }: DrawSettings): uPlot.AlignedData {
  const drawn = drawnLines(lines, smoothing);
  const lists = lines.flatMap((line, index) => {
    const { x, values, smooth } = drawn[index]!;
    const edges = hasBand(line) ? [line.maximum, line.minimum] : [];
    return [
      ...edges.map((edge) => ({ x: line.x, values: edge })),
      { x, values },
      ...(smooth ? [{ x, values: smooth }] : []),
    ];
  });
  const { x, columns } = align(lists, log);
  return [x, ...(columns as Column[])] as uPlot.AlignedData;
}

/** The units that have an axis each: the first on the left, and another one on the right. */
export function unitsOf(lines: readonly Line[]): Unit[] {
  return [...new Set(lines.map(({ unit }) => unit))].slice(0, 2);
}

function scaleOf(line: Line, units: readonly Unit[]): string {
  return units.indexOf(line.unit) > 0 ? "right" : "y";
}

const GHOST = 0.28;
const DASHES = [7, 7];

export function lineSeries(
  lines: readonly Line[],
  palette: Palette,
  { smoothing }: Pick<DrawSettings, "smoothing">,
): Pick<uPlot.Options, "series" | "bands"> {
  const units = unitsOf(lines);
  const drawn: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  for (const line of lines) {
    const color = palette.series[line.color % palette.series.length]!;
    const common = { scale: scaleOf(line, units), label: line.label, ...(line.dashed ? { dash: DASHES } : {}) };
    if (hasBand(line)) {
      bands.push({ series: [drawn.length, drawn.length + 1], fill: fade(color, 0.16) });
      const edge = { ...common, stroke: fade(color, smoothing ? GHOST : 0.7), width: 1, points: { show: false } };
      drawn.push(edge, edge);
    }
    drawn.push({
      ...common,
      stroke: smoothing ? fade(color, GHOST) : color,
      width: 1.5,
      points: { show: line.sparse, size: 5, fill: color },
    });
    if (smoothing) drawn.push({ ...common, stroke: color, width: 1.75, points: { show: false } });
  }
  return { series: drawn, bands };
}

/** How far an extreme must stand out to be drawn by itself. */
const NOTABLE_PX = 8;
const WHISKER_PX = 1.5;

/** What stands out of a line, on whole pixels of the canvas: one step out of thousands is narrower than one. */
export function extremeBars(plot: uPlot, lines: readonly Line[], palette: Palette): Bar[] {
  const units = unitsOf(lines);
  const bottom = plot.bbox.top + plot.bbox.height;
  const width = Math.max(1, Math.round(WHISKER_PX * devicePixelRatio));
  return lines.flatMap((line) => {
    const color = palette.series[line.color % palette.series.length]!;
    const heightOf = (value: number) => plot.valToPos(value, scaleOf(line, units), true);
    const barsOf = (extreme: readonly number[], upwards: boolean) => {
      const heights = extreme.map(heightOf).map((y) => (Number.isFinite(y) ? (upwards ? -y : y) : NaN));
      return peaks(heights, NOTABLE_PX * devicePixelRatio).map((at) => {
        const value = heightOf(line.value[at]!);
        const [from, to] = [Math.abs(heights[at]!), Number.isFinite(value) ? value : bottom];
        const x = Math.round(plot.valToPos(line.x[at]!, "x", true) - width / 2);
        return { x, y: Math.min(from, to), width, height: Math.abs(from - to), color };
      });
    };
    return [...barsOf(line.maximum, true), ...barsOf(line.minimum, false)];
  });
}

/** Draws the bars at full colour, within the plot. */
export function drawBars({ ctx, bbox }: uPlot, bars: readonly Bar[]): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { x, y, width, height, color } of bars) {
    ctx.fillStyle = color;
    ctx.fillRect(x, y, width, height);
  }
  ctx.restore();
}

interface Scaling {
  log: boolean;
  /** Of the left axis, and of the right one if there is one. */
  units: readonly Unit[];
  axis?: Axis;
  /** What the axes show; null: everything. The x axis asks anew whenever there is new data. */
  x?(): Range | null;
  y?: Range | null;
}

export function baseOptions(
  palette: Palette,
  { log, units, axis = "step", x = () => null, y = null }: Scaling,
): Omit<uPlot.Options, "width" | "height" | "series"> {
  const common = {
    stroke: palette.text,
    font: "11px 'Inter Variable', sans-serif",
    grid: { stroke: palette.line, width: 1 },
    ticks: { show: false },
  };
  const splits = log ? { splits: (_: uPlot, __: number, low: number, high: number) => logSplits(low, high) } : {};
  const scale: uPlot.Scale = { ...(log ? { distr: 3 } : {}), ...(y ? { range: () => [y.from, y.to] } : {}) };
  const ofValues = (unit: Unit) => ({ ...common, size: 56, gap: 4, ...axisOf(unit), ...splits, filter: allOf });
  return {
    legend: { show: false },
    padding: [10, 18, 0, 0],
    cursor: {
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      sync: { key: `paceline-${axis}`, filters: { pub: isMove } },
    },
    scales: {
      x: {
        time: false,
        range: ({ data }, low, high) => {
          const shown = x();
          if (shown) return [shown.from, shown.to];
          const only = data[0].length === 1 ? data[0][0]! : low; // uPlot has widened a single place by far: a time by weeks
          return data[0].length === 1 || low === high ? [only - 1, only + 1] : [low, high];
        },
      },
      y: scale,
      ...(units.length > 1 ? { right: log ? { distr: 3 } : {} } : {}),
    },
    axes: [
      {
        ...common,
        size: 26,
        gap: 4,
        label: AXIS_WORDS[axis].label,
        labelSize: 15,
        labelGap: 0,
        labelFont: common.font,
        values: (_, ticks) => placeTicks(axis, ticks),
        ...(axis === "time" ? { incrs: TIME_INCREMENTS } : {}),
      },
      ofValues(units[0] ?? ""),
      ...units.slice(1).map((unit) => ({ ...ofValues(unit), scale: "right", side: 1 as const, grid: { show: false } })),
    ],
  };
}

function allOf(_: uPlot, splits: number[]): number[] {
  return splits;
}

/** Charts share the pointer, but each is zoomed by itself. */
function isMove(type: string): boolean {
  return type === "mousemove" || type === "mouseleave";
}

/** A tick at the foot where a value was NaN or infinite. */
export function drawUndefined(plot: uPlot, undefinedAt: readonly number[], palette: Palette): void {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  ctx.save();
  ctx.fillStyle = palette.bad;
  for (const place of undefinedAt) {
    const x = plot.valToPos(place, "x", true);
    if (x >= left && x <= left + width)
      ctx.fillRect(
        x - devicePixelRatio,
        top + height - 8 * devicePixelRatio,
        2 * devicePixelRatio,
        8 * devicePixelRatio,
      );
  }
  ctx.restore();
}

/** Where each mark stands within the chart's element; what is out of view stands nowhere. */
export function placeMarks(plot: uPlot, marks: readonly Mark[], placeOf: (mark: Mark) => number): Placed[] {
  const { clientWidth: width, offsetLeft } = plot.over;
  return marks.flatMap((mark) => {
    const x = Math.round(plot.valToPos(placeOf(mark), "x"));
    return x >= 0 && x <= width ? [{ left: x + offsetLeft, room: width - x, mark }] : [];
  });
}
