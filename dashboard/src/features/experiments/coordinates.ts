/** Parallel coordinates: an axis for each value that differs and for the figures that matter; a line for each configuration. Pure. */
import type { Configuration } from "@/lib/types";
import { differing, valuesOf } from "./fields";
import { axisTitle, figureNamed, titleOf, valueInWords, type FigureName, type FigureSpec } from "./figures";

export interface CoordinateAxis {
  id: string;
  title: string;
  /** From the foot (0) to the top (1); null where a configuration has no value. */
  positions: readonly (number | null)[];
  ticks: readonly { at: number; text: string }[];
}

const SHOWN: readonly FigureName[] = ["samples_per_second", "efficiency", "peak_memory_bytes", "metric"];
const MOST_TICKS = 8;

export function coordinateAxes(
  configurations: readonly Configuration[],
  axes: readonly string[],
  metric: string,
): CoordinateAxis[] {
  const figures = SHOWN.map((name) => figureNamed(name)!).filter(({ name }) =>
    configurations.some((one) => one[name] !== null),
  );
  return [
    ...differing(configurations, axes).map((path) => ofValues(configurations, path)),
    ...figures.map((figure) => ofFigure(configurations, figure, titleOf(figure, metric))),
  ];
}

/** Values of a grid are as far from each other as they come: they are chosen. Many numbers were drawn, and stand by their size. */
function ofValues(configurations: readonly Configuration[], path: string): CoordinateAxis {
  const values = valuesOf(configurations, path);
  if (values.length > MOST_TICKS && values.every((value) => typeof value === "number"))
    return ofDrawn(configurations, path, values);
  const place = (value: unknown) => {
    const index = values.findIndex((known) => JSON.stringify(known) === JSON.stringify(value));
    return index < 0 ? null : values.length === 1 ? 0.5 : index / (values.length - 1);
  };
  return {
    id: path,
    title: axisTitle(path),
    positions: configurations.map(({ values: own }) => place(own[path])),
    ticks: thinned(values.map((value) => ({ at: place(value)!, text: valueInWords(value) }))),
  };
}

const LOG_FROM = 20;

function ofDrawn(configurations: readonly Configuration[], path: string, values: readonly number[]): CoordinateAxis {
  const [first, last] = [values[0]!, values.at(-1)!];
  const size = first > 0 && last / first >= LOG_FROM ? Math.log : (value: number) => value;
  const place = (value: number) => (size(value) - size(first)) / (size(last) - size(first));
  return {
    id: path,
    title: axisTitle(path),
    positions: configurations.map(({ values: own }) => (typeof own[path] === "number" ? place(own[path]) : null)),
    ticks: [first, last].map((value) => ({ at: place(value), text: valueInWords(value) })),
  };
}

function thinned<T>(ticks: readonly T[]): T[] {
  const every = Math.ceil(ticks.length / MOST_TICKS);
  return ticks.filter((_, index) => index % every === 0 || index === ticks.length - 1);
}

function ofFigure(configurations: readonly Configuration[], figure: FigureSpec, title: string): CoordinateAxis {
  const values = configurations.map((one) => one[figure.name]?.value ?? null);
  const known = values.filter((value) => value !== null);
  const low = Math.min(...known);
  const high = Math.max(...known);
  const place = (value: number) => (high === low ? 0.5 : (value - low) / (high - low));
  return {
    id: figure.name,
    title,
    positions: values.map((value) => (value === null ? null : place(value))),
    ticks: (high === low ? [low] : [low, high]).map((value) => ({ at: place(value), text: figure.write(value) })),
  };
}
