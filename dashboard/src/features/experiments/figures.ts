/** The figures of a configuration: how each is named, written and read off. Pure. */
import { bytes, measured, MISSING, percent, shortTime, si } from "@/lib/format";
import type { Configuration, Estimate } from "@/lib/types";

export interface FigureSpec {
  name: FigureName;
  title: string;
  /** Beside the title: "samples/s". */
  unit: string;
  /** Which way is better; null where the experiment's goal says it. */
  better: "less" | "more" | null;
  write(value: number): string;
}

type EstimateOf<Key> = Key extends keyof Configuration
  ? Estimate | null extends Configuration[Key]
    ? Key
    : never
  : never;
export type FigureName = EstimateOf<keyof Configuration>;

const count = (value: number) => si(value);
const share = (value: number) => percent(value, 1);

export const FIGURES: readonly FigureSpec[] = [
  { name: "efficiency", title: "Scaling efficiency", unit: "", better: "more", write: (value) => percent(value) },
  { name: "speedup", title: "Speedup", unit: "×", better: "more", write: (value) => `${value.toFixed(2)}×` },
  { name: "samples_per_second", title: "Samples per second", unit: "samples/s", better: "more", write: count },
  { name: "tokens_per_second", title: "Tokens per second", unit: "tokens/s", better: "more", write: count },
  { name: "step_seconds", title: "Step time", unit: "", better: "less", write: shortTime },
  { name: "peak_memory_bytes", title: "Peak memory", unit: "", better: "less", write: bytes },
  { name: "exposed_communication", title: "Exposed communication", unit: "", better: "less", write: share },
  { name: "bytes_per_step", title: "Sent per step", unit: "", better: "less", write: bytes },
  { name: "bubble", title: "Pipeline bubble", unit: "", better: "less", write: share },
  { name: "goodput", title: "Goodput", unit: "", better: "more", write: share },
  { name: "slot_hours", title: "Slot-hours", unit: "", better: "less", write: measured },
  { name: "energy_joules", title: "Energy", unit: "J", better: "less", write: count },
  { name: "metric", title: "Final metric", unit: "", better: null, write: measured },
];

/** What is looked at first; the others are there when they are wanted. */
const MAIN: readonly FigureName[] = ["efficiency", "samples_per_second", "step_seconds", "peak_memory_bytes", "metric"];

export function isMain({ name }: FigureSpec): boolean {
  return MAIN.includes(name);
}

/** The experiment's metric by its own name: "Final loss". */
export function titleOf(figure: FigureSpec, metric: string): string {
  return figure.better === null ? figure.title.replace("metric", metric) : figure.title;
}

export function figureNamed(name: string | undefined): FigureSpec | undefined {
  return FIGURES.find((figure) => figure.name === name);
}

/** Those that at least one configuration has. */
export function figuresOf(configurations: readonly Configuration[]): FigureSpec[] {
  return FIGURES.filter(({ name }) => configurations.some((one) => one[name] !== null));
}

/** What `bestFirst` goes by: the metric, or the speed where no configuration has one. */
export function orderingOf(figures: readonly FigureSpec[]): FigureSpec | undefined {
  const find = (name: FigureName) => figures.find((figure) => figure.name === name);
  return find("metric") ?? find("samples_per_second");
}

export type Goal = "minimize" | "maximize";

/** The recommended one, then those with a result, best first; then by speed where there is no result; refused ones last. */
export function bestFirst(configurations: readonly Configuration[], best: number | null, goal: Goal): Configuration[] {
  const sign = goal === "minimize" ? 1 : -1;
  const rank = ({ index, refusal, metric, samples_per_second: speed }: Configuration) => [
    index === best ? 0 : 1,
    refusal === null ? 0 : 1,
    metric === null ? Infinity : sign * metric.value,
    speed === null ? Infinity : -speed.value,
    index,
  ];
  return configurations
    .map((one) => ({ one, rank: rank(one) }))
    .sort((a, b) => inOrder(a.rank, b.rank))
    .map(({ one }) => one);
}

/** The first place where they differ decides. */
function inOrder(a: readonly number[], b: readonly number[]): number {
  const place = a.findIndex((value, index) => value !== b[index]);
  return place < 0 || a[place]! < b[place]! ? -1 : 1;
}

/** The ends of its interval, "80–83%"; null where there is one value. */
export function intervalOf(estimate: Estimate, figure: FigureSpec): string | null {
  const { value, low, high } = estimate;
  if (low == null || high == null || (low === value && high === value)) return null;
  const [from, to] = [figure.write(low), figure.write(high)];
  const unit = /[^0-9.]*$/.exec(to)![0];
  return `${unit !== "" && from.endsWith(unit) ? from.slice(0, -unit.length) : from}–${to}`;
}

/** "82% (80–83%)"; without an interval where there is one value. */
export function written(estimate: Estimate | null, figure: FigureSpec): string {
  if (estimate === null) return MISSING;
  const interval = intervalOf(estimate, figure);
  return figure.write(estimate.value) + (interval === null ? "" : ` (${interval})`);
}

/** A value of the grid as it is typed. */
export function valueInWords(value: unknown): string {
  if (value === undefined || value === null) return MISSING;
  return typeof value === "number" ? numberInWords(value) : typeof value === "string" ? value : JSON.stringify(value);
}

function numberInWords(value: number): string {
  return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : measured(value);
}

/** The last parts of a path are what one calls it: `training.global_batch_size` is "global batch size". */
export function axisTitle(path: string): string {
  if (path === "world_size") return "Ranks";
  const last = path.split(".").at(-1)!;
  const name = last === "lr" ? "learning rate" : last.replaceAll("_", " ");
  return name.charAt(0).toUpperCase() + name.slice(1);
}
