/** How the causes of time look; what they mean is told by the coordinator. */
import { duration, percent, shortTime, title } from "@/lib/format";
import type { Goodput, TimePart } from "@/lib/types";

const COLORS: Record<TimePart["cause"], string> = {
  stepping: "--good",
  redone: "--series-2",
  evaluating_and_saving: "--series-1",
  starting: "--series-4",
  waiting: "--series-6",
  incident: "--bad",
  resizing: "--series-3",
  pausing: "--series-5",
  stopping: "--mark-2",
  unaccounted: "--track",
};

/** A cause of a newer coordinator has the colour of what is unaccounted for. */
export function colorOf(cause: TimePart["cause"]): string {
  return COLORS[cause] ?? COLORS.unaccounted;
}

export function nameOf(cause: TimePart["cause"]): string {
  return cause === "stepping" ? "Useful steps" : title(cause);
}

/** A part of a run that lasts minutes may be milliseconds. */
export function timeOf(seconds: number): string {
  return seconds < 60 ? shortTime(seconds) : duration(seconds);
}

/** Shares that would round to nothing, or to everything, are told to more digits. */
export function shareOf(share: number): string {
  return percent(share, share > 0 && (share < 0.001 || share > 0.999) && share < 1 ? 2 : 1);
}

/** Every figure of the bar. */
export function accountOf({ parts }: Goodput): string {
  return parts
    .map(({ cause, share, seconds }) => `${nameOf(cause).toLowerCase()} ${shareOf(share)} (${timeOf(seconds)})`)
    .join(", ");
}
