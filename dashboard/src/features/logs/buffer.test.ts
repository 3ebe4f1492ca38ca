import { describe, expect, it } from "vitest";
import type { LogEntry, LogPage } from "@/lib/types";
import { logLine } from "@/testing/fixtures";
import {
  lastStates,
  merge,
  MOST_LINES,
  passes,
  windowOf,
  withGap,
  withNewer,
  withOlder,
  withStreamed,
  type LogWindow,
} from "./buffer";

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => logLine(from + index));
const seqs = (some: readonly LogEntry[]) => some.map(({ seq }) => seq);
const ends = ({ lines }: LogWindow) => [lines[0]!.seq, lines.at(-1)!.seq];

function page(from: number, to: number, part: Partial<LogPage> = {}): LogPage {
  const items = range(from, to);
  return {
    items,
    next_after: to - 1,
    next_before: from > 1 ? from : null,
    at_end: true,
    arriving: false,
    complete: false,
    ...part,
  };
}

describe("the window of a log", () => {
  it("grows to both sides, and knows what to ask for next", () => {
    let window = windowOf(page(500, 1000, { at_end: false }));
    expect([window.older, window.newer]).toEqual([500, 999]);
    window = withOlder(window, page(1, 500));
    window = withNewer(window, page(1000, 1200, { complete: true }));
    expect(ends(window)).toEqual([1, 1199]);
    expect([window.older, window.newer, window.streamFrom, window.complete]).toEqual([null, null, 1199, true]);
  });

  it("is bounded: it forgets the side that is farther from the reader, and can read it again", () => {
    const last = 2 * MOST_LINES;
    let window = withOlder(windowOf(page(last - 100, last)), page(50, last - 100));
    expect(ends(window)).toEqual([50, MOST_LINES + 49]);
    expect([window.older, window.newer]).toEqual([50, MOST_LINES + 49]);
    window = withNewer(window, page(MOST_LINES + 50, MOST_LINES + 150));
    expect(ends(window)).toEqual([150, MOST_LINES + 149]);
    expect([window.older, window.newer]).toEqual([150, null]);
  });

  it("takes lines of the stream only where it reaches to the end", () => {
    const atEnd = windowOf(page(1, 10));
    expect(ends(withStreamed(atEnd, range(10, 12)))).toEqual([1, 11]);
    const before = windowOf(page(1, 10, { at_end: false }));
    expect(withStreamed(before, range(10, 12))).toBe(before);
    expect(withGap(withStreamed(atEnd, range(10, 12))).newer).toBe(11);
  });

  it("keeps lines in order, each once, whichever side they come from", () => {
    expect(seqs(merge(range(5, 7), range(7, 8)))).toEqual([5, 6, 7]);
    expect(seqs(merge(range(5, 7), range(3, 6)))).toEqual([3, 4, 5, 6]);
    expect(seqs(merge(range(5, 7), range(6, 7)))).toEqual([5, 6]);
  });

  it("keeps a match a match where it is context of another one", () => {
    const context = logLine(5, { context: true });
    expect(merge([logLine(5), logLine(7)], [context])[0]!.context).toBe(false);
    expect(merge([context, logLine(7)], [logLine(5)])[0]!.context).toBe(false);
  });
});

describe("lines", () => {
  it("of a progress bar are shown as it is now", () => {
    const bar = { overwrites: true };
    const lines = [logLine(1), logLine(2), logLine(3, { rank: 1 }), logLine(4, bar), logLine(5, bar), logLine(6)];
    expect(seqs(lastStates(lines))).toEqual([1, 3, 5, 6]);
    expect(lastStates(range(1, 4))).toHaveLength(3);
  });

  it("that arrive live are filtered as the server does", () => {
    const line = logLine(1, { rank: 2, level: "error", text: "CUDA out of Memory" });
    const passing = [{}, { rank: 2 }, { level: "error" as const }, { q: "memory" }];
    expect(passing.map((filter) => passes(line, filter))).toEqual([true, true, true, true]);
    const others = [{ rank: 0 }, { level: "info" as const }, { q: "disk" }];
    expect(others.map((filter) => passes(line, filter))).toEqual([false, false, false]);
  });
});
