/** Where a step's time goes, configuration by configuration. Pure. */
import { percent, shortTime, title } from "@/lib/format";
import type { Configuration } from "@/lib/types";

export interface SplitPart {
  name: string;
  seconds: number;
  color: string;
}

export interface SplitRow {
  configuration: number;
  label: string;
  total: number;
  parts: readonly SplitPart[];
}

/** As on a job's page, in the same colours; names that are not known follow. */
const KNOWN = ["data", "forward", "backward", "communication", "optimizer", "other"];

const bare = (name: string) => name.replace(/_seconds$/, "");

/** The parts that any of them has, in the order of a step. */
export function partNames(configurations: readonly Configuration[]): string[] {
  const found = new Set(configurations.flatMap(({ parts }) => Object.keys(parts).map(bare)));
  return [...KNOWN.filter((name) => found.has(name)), ...[...found].filter((name) => !KNOWN.includes(name)).sort()];
}

export function colorOf(name: string): string {
  const place = KNOWN.indexOf(name);
  return `--series-${(place < 0 ? KNOWN.length - 1 : place) + 1}`;
}

export function splitRows(configurations: readonly Configuration[]): SplitRow[] {
  const names = partNames(configurations);
  return configurations
    .map(({ index, label, parts }) => {
      const seconds = new Map(Object.entries(parts).map(([name, value]) => [bare(name), value]));
      const split = names.map((name) => ({ name, seconds: seconds.get(name) ?? 0, color: colorOf(name) }));
      return { configuration: index, label, parts: split, total: split.reduce((sum, part) => sum + part.seconds, 0) };
    })
    .filter(({ total }) => total > 0);
}

export function partTitle(name: string): string {
  return title(name);
}

/** The fastest and the slowest, each with its greatest part. */
export function splitSentence(rows: readonly SplitRow[]): string {
  if (rows.length === 0) return "No split of the step time is known yet.";
  const sorted = rows.toSorted((a, b) => a.total - b.total);
  const said = [sorted[0]!, ...(sorted.length > 1 ? [sorted.at(-1)!] : [])].map((row) => {
    const top = row.parts.reduce((a, b) => (b.seconds > a.seconds ? b : a));
    return `${row.label} takes ${shortTime(row.total)}, ${percent(top.seconds / row.total)} of it ${top.name}`;
  });
  return `${said[0]}${said[1] ? ` (the shortest step); ${said[1]} (the longest)` : ""}.`;
}
