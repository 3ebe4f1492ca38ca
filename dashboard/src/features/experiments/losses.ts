/** The losses of configurations, one over the other. Pure. */
import { count, duration, measured, plural } from "@/lib/format";
import type { Analysis, LossSeries } from "@/lib/types";
import { extentOf } from "./charts/scale";

export const LOSS_AXES = ["samples", "seconds", "steps"] as const;
export type LossAxis = (typeof LOSS_AXES)[number];

export interface LossLine {
  configuration: number;
  trial: number;
  name: string;
  points: readonly (readonly [number, number | null])[];
  /** A colour of its own; null: drawn in grey, behind the others. */
  color: string | null;
}

/** As many as there are colours to tell them apart. */
const MOST_COLOURED = 6;

/** The recommended one first, then those with the lowest last losses; the others keep their place in grey. */
export function lossLines({ series, configurations, best }: Analysis, axis: LossAxis): LossLine[] {
  const ranked = [...series].sort(
    (a, b) => Number(b.configuration === best) - Number(a.configuration === best) || lastOf(a) - lastOf(b),
  );
  return ranked.map((one, place) => ({
    configuration: one.configuration,
    trial: one.trial,
    name: configurations.find(({ index }) => index === one.configuration)?.label ?? `trial ${one.trial}`,
    points: one[axis].map((x, index) => [x, one.losses[index] ?? null] as const),
    color: place < MOST_COLOURED ? `--series-${place + 1}` : null,
  }));
}

function lastOf({ losses }: LossSeries): number {
  return losses.findLast((loss) => loss !== null) ?? Infinity;
}

const WIDE = 100;

/** Losses so far apart that one curve would flatten all others: over two decades. Never with negative ones, which a log axis would hide. */
export function isWide(lines: readonly LossLine[]): boolean {
  const positive = positiveExtent(lines);
  const negative = lines.some(({ points }) => points.some(([, loss]) => loss !== null && loss < 0));
  return positive !== null && positive[1] > WIDE * positive[0] && !negative;
}

/** Says what a log axis leaves out; empty: nothing. */
export function leftOutByLog(lines: readonly LossLine[]): string {
  const hidden = lines.flatMap(({ points }) => points).filter(([, loss]) => loss !== null && !isPositive(loss)).length;
  return hidden > 0 ? ` Not on a log scale: ${plural(hidden, "value")} of zero or less.` : "";
}

/** What a log axis can show; null: nothing. */
export function positiveExtent(lines: readonly LossLine[]): [number, number] | null {
  return extentOf(lines.flatMap(({ points }) => points.map(([, loss]) => (isPositive(loss) ? loss : null))));
}

export function isPositive(loss: number | null): loss is number {
  return loss !== null && loss > 0;
}

export function writeX(axis: LossAxis, value: number): string {
  return axis === "seconds" ? duration(value) : count(value);
}

const MOST_NAMED = 3;

export function lossSentence(lines: readonly LossLine[], axis: LossAxis): string {
  const said = lines.slice(0, MOST_NAMED).flatMap(({ name, points }) => {
    const last = points.findLast(([, loss]) => loss !== null);
    return last ? [`${name} ${measured(last[1])} after ${atX(axis, last[0])}`] : [];
  });
  const more = lines.length - MOST_NAMED;
  return said.length > 0 ? `${said.join("; ")}${more > 0 ? `; ${more} more` : ""}.` : "No loss is known yet.";
}

function atX(axis: LossAxis, x: number): string {
  return axis === "seconds" ? duration(x) : `${count(x)} ${axis}`;
}

export interface LossRow {
  line: string;
  trial: number;
  x: number;
  loss: number | null;
}

export function lossRows(lines: readonly LossLine[]): LossRow[] {
  return lines.flatMap(({ name, trial, points }) => points.map(([x, loss]) => ({ line: name, trial, x, loss })));
}
