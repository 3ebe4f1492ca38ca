/** What the charts' x axis counts. Pure. */
import { count, duration, measured, si, tickLabels } from "@/lib/format";
import type { Series } from "./curves";

export const AXES = ["step", "time", "samples", "tokens", "epoch"] as const;
export type Axis = (typeof AXES)[number];

export const AXIS_WORDS: Readonly<Record<Axis, { choice: string; label: string }>> = {
  step: { choice: "Step", label: "step" },
  time: { choice: "Time", label: "time since the start" },
  samples: { choice: "Samples", label: "samples" },
  tokens: { choice: "Tokens", label: "tokens" },
  epoch: { choice: "Epoch", label: "epoch" },
};

/** The series of one run from which the places on an axis are taken. */
export interface Run {
  /** Seconds since the epoch. */
  readonly startedAt: number;
  series(name: string): readonly Series[];
  /** Of a run whose points can be asked for. */
  readonly jobId?: string;
}

/** The metrics that an axis is made from, beside those that are drawn. */
export const SOURCES: Readonly<Record<Axis, readonly string[]>> = {
  step: [],
  time: [],
  samples: ["first_sample", "samples"],
  tokens: ["first_sample", "samples", "tokens_per_second", "samples_per_second"],
  epoch: ["first_sample", "samples", "epoch_samples", "epoch"],
};

/** The axes that a run's reported metrics allow. */
export function axesOf(names: readonly string[]): Axis[] {
  const has = (...wanted: string[]) => wanted.every((name) => names.includes(name));
  const allowed: Readonly<Record<Axis, boolean>> = {
    step: true,
    time: true,
    samples: has("first_sample", "samples"),
    tokens: has("first_sample", "samples", "tokens_per_second", "samples_per_second"),
    epoch: has("first_sample", "samples", "epoch_samples") || has("epoch"),
  };
  return AXES.filter((axis) => allowed[axis]);
}

/** Gives the places of a series' buckets on an axis; empty where the run does not tell them. */
export type Placing = (series: Series) => readonly number[];

export function placing(axis: Axis, run: Run): Placing {
  if (axis === "step") return ({ steps }) => steps;
  if (axis === "time") return ({ times }) => times.map((time) => time - run.startedAt);
  const factor = factorOf(axis, run);
  if (factor === null) return axis === "epoch" ? (series) => along(series, run.series("epoch"), lastOf) : () => [];
  const ends = sampleEnds(run);
  return (series) => along(series, ends, lastOf).map((samples) => samples * factor);
}

/** By what the samples that were used are multiplied; null: the run does not tell. */
function factorOf(axis: Axis, run: Run): number | null {
  const newest = (name: string) =>
    run
      .series(name)
      .at(-1)
      ?.last.findLast((value) => value > 0);
  if (axis === "samples") return 1;
  if (axis === "epoch") return inverse(newest("epoch_samples"));
  const [tokens, samples] = [newest("tokens_per_second"), newest("samples_per_second")];
  return tokens && samples ? tokens / samples : null;
}

function inverse(value: number | undefined): number | null {
  return value ? 1 / value : null;
}

const lastOf = ({ last }: Pick<Series, "last">) => last;

type Ends = Pick<Series, "generation" | "steps" | "last">;

/** For each generation, how many samples had been used after each step. */
function sampleEnds(run: Run): Ends[] {
  const used = run.series("samples");
  return run.series("first_sample").map(({ generation, steps, last }) => {
    const sizes = used.find((one) => one.generation === generation)?.last ?? [];
    return { generation, steps, last: last.map((first, at) => first + (sizes[at] ?? sizes.at(-1) ?? 0)) };
  });
}

/** The values of another curve of the same generation at the steps of this one, between whose points the line is straight. */
function along(series: Series, sources: readonly Ends[], valuesOf: (source: Ends) => readonly number[]): number[] {
  const source = sources.find(({ generation }) => generation === series.generation);
  if (!source || source.steps.length === 0) return [];
  const values = valuesOf(source);
  return series.steps.map((step) => interpolate(source.steps, values, step));
}

function interpolate(steps: readonly number[], values: readonly number[], step: number): number {
  if (steps.length === 1) return values[0]!;
  let [low, high] = [0, steps.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle]! <= step) low = middle;
    else high = middle;
  }
  const slope = (values[high]! - values[low]!) / (steps[high]! - steps[low]!);
  return values[low]! + slope * (step - steps[low]!);
}

/** A place on the axis, in words: "step 1,200", "3 min 05 s", "epoch 1.5". */
export function placeWords(axis: Axis, place: number): string {
  if (axis === "time") return duration(place);
  if (axis === "epoch") return `epoch ${measured(place)}`;
  return axis === "step" ? `step ${count(place)}` : `${si(place, 2)} ${AXIS_WORDS[axis].label}`;
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const TIME_UNITS = [
  { seconds: DAY, from: 3 * DAY, word: "d" },
  { seconds: HOUR, from: 2 * HOUR, word: "h" },
  { seconds: MINUTE, from: 3 * MINUTE, word: "min" },
  { seconds: 1, from: 0, word: "s" },
];

/** Labels of ticks: those of a time have one unit, which the largest asks for. */
export function placeTicks(axis: Axis, ticks: readonly number[]): string[] {
  if (axis === "epoch") return tickLabels(ticks);
  if (axis !== "time") return ticks.map((tick) => (Number.isInteger(tick) ? si(tick) : ""));
  const unit = TIME_UNITS.find(({ from }) => Math.max(...ticks) >= from) ?? TIME_UNITS.at(-1)!;
  return ticks.map((tick) => `${Number((tick / unit.seconds).toPrecision(4))} ${unit.word}`);
}

/** Seconds between two ticks of an axis of time. */
export const TIME_INCREMENTS = [
  ...[0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 5, 10, 20, 50].map((days) => days * DAY),
];
