/** A chart as a file: its numbers as CSV, and what is drawn as SVG or PNG. */
import type uPlot from "uplot";
import { csvOfRows } from "@/lib/files";
import type { Line } from "./lines";

/** One row for each bucket that the chart shows. */
export function csvOf(lines: readonly Line[]): string {
  const rows = lines.flatMap((line) =>
    line.steps.map((step, at) =>
      [
        step,
        line.label,
        line.generation,
        line.bucketSteps,
        line.x[at],
        line.value[at],
        line.minimum[at],
        line.maximum[at],
      ].map((value) => value ?? null),
    ),
  );
  return csvOfRows([["step", "name", "generation", "bucket_steps", "x", "value", "minimum", "maximum"], ...rows]);
}

/** What stands around the drawing. */
export interface Caption {
  title: string;
  sentence: string;
  legend: readonly { label: string; color: string }[];
  background: string;
  text: string;
}

/** A rectangle on the plot's canvas, drawn above the lines. */
export interface Bar {
  x: number;
  y: number;
  width: number;
  height: number;
  color: string;
}

const HEAD_PX = 54;
const FOOT_PX = 28;
const FONT = "Inter, Helvetica, Arial, sans-serif";

/** The drawing as uPlot has it: the same scales, lines, bands and ticks. */
export function svgOf(plot: uPlot, bars: readonly Bar[], caption: Caption): string {
  const { width } = plot;
  const height = HEAD_PX + plot.height + FOOT_PX;
  const frame = boxOf(plot);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${FONT}">`,
    `<rect width="100%" height="100%" fill="${caption.background}"/>`,
    text(14, 22, caption.title, caption.text, 14, "start", 600),
    ...legendOf(caption),
    `<g transform="translate(0 ${HEAD_PX})">`,
    `<clipPath id="plot"><rect x="${frame.left}" y="${frame.top}" width="${frame.width}" height="${frame.height}"/></clipPath>`,
    ...axesOf(plot, caption.text),
    `<g clip-path="url(#plot)" fill="none" stroke-linejoin="round">`,
    ...areasOf(plot),
    ...linesOf(plot),
    ...bars.map((bar) => barOf(bar)),
    `</g></g>`,
    text(14, height - 10, caption.sentence, caption.text, 12),
    `</svg>`,
  ].join("\n");
}

function boxOf({ bbox }: uPlot) {
  const { left, top, width, height } = bbox;
  const ratio = devicePixelRatio;
  return { left: left / ratio, top: top / ratio, width: width / ratio, height: height / ratio };
}

function text(x: number, y: number, words: string, fill: string, size: number, anchor = "start", weight = 400): string {
  const escaped = words.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${round(x)}" y="${round(y)}" fill="${fill}" font-size="${size}" text-anchor="${anchor}" font-weight="${weight}">${escaped}</text>`;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

const CHARACTER_PX = 7;

function legendOf({ legend, text: color }: Caption): string[] {
  let x = 14;
  return legend.flatMap((entry) => {
    const at = x;
    x += 28 + entry.label.length * CHARACTER_PX;
    return [
      `<rect x="${at}" y="33" width="9" height="9" rx="2" fill="${entry.color}"/>`,
      text(at + 14, 42, entry.label, color, 12),
    ];
  });
}

/** uPlot keeps the ticks that it has drawn in fields that its types leave out; its version is pinned. */
interface DrawnAxis extends uPlot.Axis {
  _splits?: number[] | null;
  _values?: (string | null)[] | null;
}

function axesOf(plot: uPlot, color: string): string[] {
  const { left, top, width, height } = boxOf(plot);
  return (plot.axes as DrawnAxis[]).flatMap((axis, index) => {
    const scale = axis.scale ?? (index === 0 ? "x" : "y");
    const right = scale !== "x" && index > 1;
    return (axis._splits ?? []).flatMap((split, at) => {
      const label = String(axis._values?.[at] ?? "");
      const place = plot.valToPos(split, scale) + (scale === "x" ? left : top);
      if (scale === "x")
        return [grid(place, top, place, top + height), text(place, top + height + 16, label, color, 11, "middle")];
      const tick = text(right ? left + width + 6 : left - 6, place + 4, label, color, 11, right ? "start" : "end");
      return right ? [tick] : [grid(left, place, left + width, place), tick];
    });
  });
}

function grid(x1: number, y1: number, x2: number, y2: number): string {
  const [fromX, fromY, toX, toY] = [x1, y1, x2, y2].map(round);
  return `<line x1="${fromX}" y1="${fromY}" x2="${toX}" y2="${toY}" stroke="#808899" stroke-opacity="0.25"/>`;
}

type Points = readonly (readonly [number, number])[];

/** The unbroken pieces of a series: null ends one, undefined is another series' place. */
function piecesOf(plot: uPlot, index: number): Points[] {
  const { left, top } = boxOf(plot);
  const scale = plot.series[index]!.scale ?? "y";
  const pieces: [number, number][][] = [[]];
  plot.data[index]!.forEach((value, at) => {
    if (value === undefined) return;
    if (value === null) pieces.push([]);
    else pieces.at(-1)!.push([plot.valToPos(plot.data[0][at]!, "x") + left, plot.valToPos(value, scale) + top]);
  });
  return pieces.filter((piece) => piece.length > 0);
}

function pathOf(points: Points): string {
  return points.map(([x, y], at) => `${at === 0 ? "M" : "L"}${round(x)} ${round(y)}`).join("");
}

function linesOf(plot: uPlot): string[] {
  return plot.series.flatMap((series, index) => {
    const stroke = index > 0 ? paint(series.stroke, plot, index) : null;
    if (stroke === null) return [];
    const pieces = piecesOf(plot, index);
    const dash = series.dash ? ` stroke-dasharray="${series.dash.join(" ")}"` : "";
    const marks = series.points?.show === true || pieces.every(({ length }) => length < 2);
    const dots = marks
      ? pieces.flat().map(([x, y]) => `<circle cx="${round(x)}" cy="${round(y)}" r="2.5" fill="${stroke}"/>`)
      : [];
    return [
      `<path d="${pieces.map(pathOf).join("")}" stroke="${stroke}" stroke-width="${series.width ?? 1}"${dash}/>`,
      ...dots,
    ];
  });
}

/** What is filled between two series, and below one. */
function areasOf(plot: uPlot): string[] {
  const { top, height } = boxOf(plot);
  const filled = plot.series.flatMap((series, index) => {
    const fill = index > 0 ? paint(series.fill, plot, index) : null;
    const floor = (points: Points): Points => points.map(([x]) => [x, top + height] as const);
    return fill === null ? [] : piecesOf(plot, index).map((points) => area(points, floor(points), fill));
  });
  const between = (plot as uPlot & { bands: uPlot.Band[] }).bands.flatMap(({ series: [upper, lower], fill }) => {
    const color = paint(fill, plot, upper);
    const below = piecesOf(plot, lower);
    return color === null ? [] : piecesOf(plot, upper).map((points, at) => area(points, below[at] ?? points, color));
  });
  return [...filled, ...between];
}

function area(upper: Points, lower: Points, fill: string): string {
  return `<path d="${pathOf([...upper, ...lower.toReversed()])}Z" fill="${fill}"/>`;
}

/** The colour of a style, which uPlot has made a function of. */
function paint(style: unknown, plot: uPlot, index: number): string | null {
  const found: unknown = typeof style === "function" ? style(plot, index) : style;
  return typeof found === "string" ? found : null;
}

function barOf({ x, y, width, height, color }: Bar): string {
  const [left, top, wide, high] = [x, y, width, height].map((length) => round(length / devicePixelRatio));
  return `<rect x="${left}" y="${top}" width="${wide}" height="${high}" fill="${color}"/>`;
}

const SHARPNESS = 2;

/** The SVG as pixels, two for each of the screen's. */
export async function pngOf(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width * SHARPNESS, image.height * SHARPNESS];
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser could not make a PNG.")))),
  );
}
