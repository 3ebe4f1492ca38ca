/** The lines that are loaded: a window of the log, in the order of `seq`, each once, bounded. Pure. */
import type { LogEntry, LogPage } from "@/lib/types";
import type { LogFilter } from "./api/logs";

export const MOST_LINES = 20_000;

export interface LogWindow {
  lines: readonly LogEntry[];
  /** What to ask for earlier lines with; null: there are none. */
  older: number | null;
  /** What to ask for later lines with; null: the window reaches to the end, and goes on with what is printed. */
  newer: number | null;
  /** Behind which `seq` the stream goes on, where the window reaches to the end. */
  streamFrom: number;
  /** The job has ended, and its last lines are on their way. */
  arriving: boolean;
  complete: boolean;
}

export function windowOf(page: LogPage): LogWindow {
  return { ...endOf(page), lines: page.items, older: page.next_before };
}

/** The window with the page before it. Where it gets too large it loses its end, which is read again on the way back. */
export function withOlder(window: LogWindow, page: LogPage): LogWindow {
  const lines = merge(window.lines, page.items);
  const kept = lines.slice(0, MOST_LINES);
  const newer = kept.length < lines.length ? kept.at(-1)!.seq : window.newer;
  return { ...window, lines: kept, older: page.next_before, newer };
}

/** The window with the page after it. Where it gets too large it loses its beginning. */
export function withNewer(window: LogWindow, page: LogPage): LogWindow {
  return { ...withoutBeginning({ ...window, lines: merge(window.lines, page.items) }), ...endOf(page) };
}

/** The window with lines of the stream; they do not belong to one that ends before them. */
export function withStreamed(window: LogWindow, lines: readonly LogEntry[]): LogWindow {
  return window.newer === null ? withoutBeginning({ ...window, lines: merge(window.lines, lines) }) : window;
}

/** Adds a line to those that wait to be shown. Twice a window of them is kept at most: of more, the window would forget the first ones anyway. */
export function addWaiting(waiting: LogEntry[], line: LogEntry): void {
  waiting.push(line);
  if (waiting.length >= 2 * MOST_LINES) waiting.splice(0, waiting.length - MOST_LINES);
}

/** The window where the stream has left lines out: they are to be asked for. */
export function withGap(window: LogWindow): LogWindow {
  return window.newer === null ? { ...window, newer: window.lines.at(-1)?.seq ?? window.streamFrom } : window;
}

function endOf({ at_end, next_after, arriving, complete }: LogPage) {
  return { newer: at_end ? null : next_after, streamFrom: next_after, arriving, complete };
}

function withoutBeginning(window: LogWindow): LogWindow {
  if (window.lines.length <= MOST_LINES) return window;
  const lines = window.lines.slice(-MOST_LINES);
  return { ...window, lines, older: lines[0]!.seq };
}

/** `more` may overlap `lines` on either side. A line that matches stays one, also as context of another. */
export function merge(lines: readonly LogEntry[], more: readonly LogEntry[]): readonly LogEntry[] {
  if (more.length === 0) return lines;
  const newest = lines.at(-1)?.seq ?? -1;
  if (more[0]!.seq > newest) return [...lines, ...more];
  const bySeq = new Map(lines.map((line) => [line.seq, line]));
  for (const line of more) if (!line.context || !bySeq.has(line.seq)) bySeq.set(line.seq, line);
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq);
}

/** Without lines that a later one of the same rank overwrites, as a progress bar does. */
export function lastStates(lines: readonly LogEntry[]): readonly LogEntry[] {
  if (!lines.some(({ overwrites }) => overwrites)) return lines;
  const overwritten = new Set<number>();
  const newest = new Map<string, number>();
  for (const { seq, rank, generation, overwrites } of lines) {
    const place = `${generation}/${rank}`;
    const before = newest.get(place);
    if (overwrites && before !== undefined) overwritten.add(before);
    newest.set(place, seq);
  }
  return lines.filter(({ seq }) => !overwritten.has(seq));
}

/** Whether the server alone can tell which of the lines that come are to be shown. */
export function isSearchedByServer({ q, regex, context }: LogFilter): boolean {
  return Boolean(q && (regex || context));
}

/** The server's filter, for lines that arrive live. */
export function passes(line: LogEntry, { rank, level, q }: LogFilter): boolean {
  if (rank !== undefined && line.rank !== rank) return false;
  if (level !== undefined && line.level !== level) return false;
  return !q || line.text.toLowerCase().includes(q.toLowerCase());
}
