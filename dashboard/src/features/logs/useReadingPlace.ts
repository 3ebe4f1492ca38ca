import type { Virtualizer } from "@tanstack/react-virtual";
import { useLayoutEffect, useRef, type RefObject } from "react";
import type { LogEntry } from "@/lib/types";

/** Keeps what is being read in its place when lines come in above it, or leave there. */
export function useReadingPlace(
  lines: readonly LogEntry[],
  scroller: RefObject<HTMLDivElement | null>,
  virtual: Virtualizer<HTMLDivElement, Element>,
  reading: boolean,
) {
  const place = useRef<{ lines: readonly LogEntry[]; seq: number; start: number } | null>(null);
  // After each render: the virtualizer moves lines by itself, too, once it has measured them.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const held = place.current;
    if (reading && held !== null && held.lines !== lines) {
      const start = virtual.measurementsCache[indexOf(lines, held.seq)]?.start;
      if (start !== undefined && start !== held.start) element.scrollTop += start - held.start;
    }
    const first = virtual.getVirtualItemForOffset(element.scrollTop);
    const line = first && lines[first.index];
    place.current = line ? { lines, seq: line.seq, start: first.start } : null;
  });
}

/** The index of the line with this `seq`, or -1. */
export function indexOf(lines: readonly LogEntry[], seq: number): number {
  let low = 0;
  let high = lines.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const found = lines[middle]!.seq;
    if (found === seq) return middle;
    if (found < seq) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}
