/** How the values of a chart are written: beside its title, in its sentence, on its axis. */
import type uPlot from "uplot";
import { bytes, byteTicks, measured, percent, shortTime, si, tickLabels, timeTicks } from "@/lib/format";

export type Unit =
  "" | "nats" | "tokens/s" | "samples/s" | "s" | "B" | "B/s" | "share" | "times the median" | ReadingUnit;

const READING_UNITS = ["%", "W", "°C", "MHz"] as const;
type ReadingUnit = (typeof READING_UNITS)[number];

/** The unit of a reading, as the coordinator spells it. */
export function readingUnit(unit: string): Unit {
  return unit === "B" || unit === "B/s" ? unit : (READING_UNITS.find((known) => known === unit) ?? "");
}

type Ticks = readonly (number | null)[];

/** Sizes and times have theirs on the axis. */
export function besideTitle(unit: Unit): string {
  return unit === "share" ? "%" : unit === "B" || unit === "B/s" || unit === "s" ? "" : unit;
}

/** From here on rates have an SI prefix, as on their axis and in the page's head. */
const LARGE_RATE = 1e6;

/** Sizes, times and shares are nothing without theirs. */
export function withoutUnit(value: number, unit: Unit): string {
  if (unit === "B") return bytes(Math.round(value));
  if (unit === "B/s") return `${bytes(Math.round(value))}/s`;
  if (unit === "s") return shortTime(value);
  if ((unit === "tokens/s" || unit === "samples/s") && value >= LARGE_RATE) return si(value, 2);
  return unit === "share" ? percent(value, 1) : measured(value);
}

export function withUnit(value: number, unit: Unit): string {
  const has = unit === "" || unit === "B" || unit === "B/s" || unit === "s" || unit === "share";
  return has ? withoutUnit(value, unit) : `${withoutUnit(value, unit)} ${unit}`;
}

/** Steps between two ticks of an axis of sizes. */
const POWERS_OF_TWO = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** What uPlot's axis of values needs. */
export function axisOf(unit: Unit): Pick<uPlot.Axis, "values" | "incrs"> {
  switch (unit) {
    case "B":
    case "B/s":
      return { values: (_, ticks) => byteTicks(ticks as Ticks), incrs: POWERS_OF_TWO };
    case "s":
      return { values: (_, ticks) => timeTicks(ticks as Ticks) };
    case "share":
      return { values: (_, ticks) => tickLabels((ticks as Ticks).map((tick) => (tick === null ? null : tick * 100))) };
    default:
      return { values: (_, ticks) => tickLabels(ticks as Ticks) };
  }
}
