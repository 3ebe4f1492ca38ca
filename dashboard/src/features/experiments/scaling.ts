/** Configurations as lines over the number of ranks: measured, ideal, predicted. Pure. */
import { percent } from "@/lib/format";
import type { Analysis, Configuration, Estimate } from "@/lib/types";
import { axisTitle, valueInWords } from "./figures";

export interface Point {
  ranks: number;
  /** Null: nothing measured. */
  measured: Estimate | null;
  predicted: number | null;
}

export interface ScalingLine {
  name: string;
  /** Indices of its configurations. */
  configurations: readonly number[];
  points: readonly Point[];
}

const WORLD = ["world_size", "resources.slots"];

/** A process alone has no strategy to speak of: it begins every line whose other values it shares. */
function isSingle({ world_size: ranks }: Configuration): boolean {
  return ranks === 1;
}

const STRATEGY = "parallelism.strategy";

/** What tells lines apart: all values but the number of ranks. */
function restOf({ values }: Configuration, without: readonly string[]): string {
  const rest = Object.entries(values).filter(([path]) => !without.includes(path));
  return JSON.stringify(rest.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function nameOf({ values, strategy }: Configuration): string {
  const rest = Object.entries(values)
    .filter(([path]) => !WORLD.includes(path) && path !== STRATEGY)
    .map(([path, value]) => `${axisTitle(path).toLowerCase()} ${valueInWords(value)}`);
  return [strategy, ...rest].join(", ");
}

/** Whether the experiment asks how it scales at all. */
export function asksOfScaling({ configurations, predictions }: Analysis): boolean {
  return new Set(configurations.map(({ world_size: ranks }) => ranks)).size > 1 || predictions.length > 0;
}

/** One line for each combination of the other values that was run with several numbers of ranks, or is predicted for some. */
export function scalingLines({ configurations, predictions }: Analysis): ScalingLine[] {
  const parallel = configurations.filter((one) => !isSingle(one) && one.refusal === null);
  return grouped(parallel, (one) => `${one.strategy}${restOf(one, WORLD)}`)
    .map((group) => {
      const other = restOf(group[0]!, [...WORLD, STRATEGY]);
      const single = configurations.find((one) => isSingle(one) && restOf(one, [...WORLD, STRATEGY]) === other);
      const members = single ? [single, ...group] : group;
      const beyond = predictions
        .filter(({ configuration }) => group.some(({ index }) => index === configuration))
        .map(({ ranks, efficiency }) => ({ ranks, measured: null, predicted: efficiency }));
      return {
        name: nameOf(group[0]!),
        configurations: members.map(({ index }) => index),
        points: merged([...members.map((one) => pointOf(one, single)), ...beyond]),
      };
    })
    .filter(({ points }) => points.filter(({ measured }) => measured !== null).length > 0);
}

function grouped<T>(items: readonly T[], keyOf: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return [...groups.values()];
}

/** A prediction of a step's time is one of the efficiency where the single process is predicted too. */
function pointOf(one: Configuration, single: Configuration | undefined): Point {
  const ratio =
    one.predicted_step_seconds && one.step_seconds && one.efficiency
      ? one.efficiency.value * (one.step_seconds.value / one.predicted_step_seconds)
      : null;
  const base =
    single?.predicted_step_seconds && single.step_seconds
      ? single.predicted_step_seconds / single.step_seconds.value
      : 1;
  return { ranks: one.world_size, measured: one.efficiency, predicted: ratio === null ? null : ratio * base };
}

/** One point for each number of ranks; what was measured wins over what is foretold for the same number. */
function merged(points: readonly Point[]): Point[] {
  const byRanks = new Map<number, Point>();
  for (const point of points) {
    const old = byRanks.get(point.ranks);
    byRanks.set(point.ranks, old ? { ...old, predicted: old.predicted ?? point.predicted } : point);
  }
  return [...byRanks.values()].sort((a, b) => a.ranks - b.ranks);
}

export interface ScalingRow {
  line: string;
  ranks: number;
  measured: Estimate | null;
  predicted: number | null;
}

export function scalingRows(lines: readonly ScalingLine[]): ScalingRow[] {
  return lines.flatMap(({ name, points }) => points.map((point) => ({ line: name, ...point })));
}

const MOST_NAMED = 4;

/** "ddp keeps 94% on 2 ranks; fsdp keeps 81% on 2 ranks." */
export function scalingSentence(lines: readonly ScalingLine[]): string {
  const said = lines.flatMap(({ name, points }) => {
    const last = points.findLast(({ measured, ranks }) => measured !== null && ranks > 1);
    return last ? [`${name} keeps ${percent(last.measured!.value)} on ${last.ranks} ranks`] : [];
  });
  if (said.length === 0) return "No efficiency is known yet.";
  const more = said.length - MOST_NAMED;
  return `Of the ideal speedup, ${said.slice(0, MOST_NAMED).join("; ")}${more > 0 ? `; ${more} more in the table` : ""}.`;
}
