/** The lines in view: ordered by seq, each once, bounded. Pure. */
import type { LogEntry } from "@/lib/types";
import type { LogFilter } from "./api/logs";

export const MOST_LINES = 20_000;

/** `more` may overlap `lines` on either side. */
export function merge(lines: readonly LogEntry[], more: readonly LogEntry[]): readonly LogEntry[] {
  if (more.length === 0) return lines;
  const newest = lines.at(-1)?.seq ?? -1;
  if (more[0]!.seq > newest) return [...lines, ...more].slice(-MOST_LINES);
  const bySeq = new Map([...lines, ...more].map((line) => [line.seq, line]));
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq).slice(-MOST_LINES);
}

/** The server's filter, for lines that arrive live. */
export function passes(line: LogEntry, { rank, level, q }: LogFilter): boolean {
  if (rank !== undefined && line.rank !== rank) return false;
  if (level !== undefined && line.level !== level) return false;
  return !q || line.text.toLowerCase().includes(q.toLowerCase());
}
