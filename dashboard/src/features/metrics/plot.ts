/** uPlot options and data from series: everything about drawing that is not React. */
import uPlot from "uplot";
import { si } from "@/lib/format";
import { align, bridged, smooth, undefinedSteps, type Column, type Series } from "./curves";
import type { Mark, Placed } from "./marks";
import { axisOf, type Unit } from "./units";

export interface DrawSettings {
  log: boolean;
  /** 0: none. */
  smoothing: number;
}

export interface Palette {
  text: string;
  line: string;
  bad: string;
  series: string[];
}

export function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim() || "#888";
  return {
    text: token("--muted"),
    line: token("--line-soft"),
    bad: token("--bad"),
    series: [1, 2, 3, 4, 5, 6].map((n) => token(`--series-${n}`)),
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
export function structureOf(series: readonly Series[]): string {
  return series
    .map(
      (one) =>
        `${one.name}/${one.generation}/${hasBand(one) ? "band" : "line"}/${one.steps.length < 3 ? "few" : "many"}`,
    )
    .join(" ");
}

function hasBand(series: Series): boolean {
  return series.bucketSteps > 1;
}

/** Columns in the order of `lineSeries`: for each series its maximum and minimum (if it has a band), raw line and smoothed line. */
export function lineData(
  series: readonly Series[],
  { log, smoothing }: DrawSettings,
): { data: uPlot.AlignedData; undefinedAt: number[] } {
  const lists = series.flatMap((one, index) => {
    const before = series[index - 1];
    const line = bridged(before?.name === one.name ? before : undefined, one);
    return [
      ...(hasBand(one)
        ? [
            { steps: one.steps, values: one.maximum },
            { steps: one.steps, values: one.minimum },
          ]
        : []),
      line,
      ...(smoothing > 0 ? [{ steps: line.steps, values: smooth(line.values, smoothing) }] : []),
    ];
  });
  const { x, columns } = align(lists, log);
  return { data: [x, ...(columns as Column[])] as uPlot.AlignedData, undefinedAt: undefinedSteps(series) };
}

export function lineSeries(
  series: readonly Series[],
  names: readonly string[],
  palette: Palette,
  smoothing: number,
): Pick<uPlot.Options, "series" | "bands"> {
  const drawn: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  for (const one of series) {
    const color = palette.series[names.indexOf(one.name) % palette.series.length]!;
    if (hasBand(one)) {
      bands.push({ series: [drawn.length, drawn.length + 1], fill: fade(color, 0.16) });
      drawn.push(edge(color, smoothing), edge(color, smoothing));
    }
    const sparse = one.name.startsWith("eval_") || one.steps.length < 3;
    drawn.push({
      label: one.name,
      stroke: smoothing > 0 ? fade(color, 0.28) : color,
      width: 1.5,
      points: { show: sparse, size: 5, fill: color },
    });
    if (smoothing > 0) drawn.push({ label: one.name, stroke: color, width: 1.75, points: { show: false } });
  }
  return { series: drawn, bands };
}

/** The outline of a band: without it, one step out of thousands that stands out would be a pale hair. */
function edge(color: string, smoothing: number): uPlot.Series {
  return { stroke: fade(color, smoothing > 0 ? 0.28 : 0.7), width: 1, points: { show: false } };
}

export function baseOptions(
  palette: Palette,
  { log, unit }: { log: boolean; unit: Unit },
  range: { from: number; to: number } | null,
): Omit<uPlot.Options, "width" | "height" | "series"> {
  const axis = {
    stroke: palette.text,
    font: "11px 'Inter Variable', sans-serif",
    grid: { stroke: palette.line, width: 1 },
    ticks: { show: false },
  };
  return {
    legend: { show: false },
    padding: [10, 12, 0, 0],
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 }, sync: { key: "paceline-steps" } },
    scales: {
      x: {
        time: false,
        range: range
          ? () => [range.from, range.to]
          : (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]),
      },
      y: log ? { distr: 3 } : {},
    },
    axes: [
      {
        ...axis,
        size: 26,
        gap: 4,
        label: "step",
        labelSize: 15,
        labelGap: 0,
        labelFont: axis.font,
        values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? si(tick) : "")),
      },
      { ...axis, size: 56, gap: 4, ...axisOf(unit) },
    ],
  };
}

/** A tick at the foot where a value was NaN or infinite. */
export function drawUndefined(plot: uPlot, undefinedAt: readonly number[], palette: Palette): void {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  ctx.save();
  ctx.fillStyle = palette.bad;
  for (const step of undefinedAt) {
    const x = plot.valToPos(step, "x", true);
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
export function placeMarks(plot: uPlot, marks: readonly Mark[]): Placed[] {
  const { clientWidth: width, offsetLeft } = plot.over;
  return marks.flatMap((mark) => {
    const x = Math.round(plot.valToPos(mark.step, "x"));
    return x >= 0 && x <= width ? [{ left: x + offsetLeft, room: width - x, mark }] : [];
  });
}
