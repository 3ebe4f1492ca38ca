import { Button } from "@mantine/core";
import { IconArrowDown } from "@tabler/icons-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { day, plural } from "@/lib/format";
import { serverNow } from "@/lib/serverTime";
import type { LogEntry } from "@/lib/types";
import type { Search } from "../hits";
import { indexOf, useReadingPlace } from "../useReadingPlace";
import { LogLine } from "./LogLine";
import classes from "./LogLines.module.css";

interface Props {
  lines: readonly LogEntry[];
  linked?: number;
  /** What is searched for: it is marked in each line. */
  search?: Search;
  follow: boolean;
  onFollow(follow: boolean): void;
  onLink(seq: number): void;
  /** Whether what is loaded reaches to the end of the log. */
  atEnd: boolean;
  wrap: boolean;
  /** The reader comes near to the first line that is loaded, or to the last one. */
  onTop(): Promise<void>;
  onEnd(): Promise<void>;
}

const LINE_HEIGHT = 20;
const AT_EDGE_PX = 24;
/** Lines are fetched this many screens before the reader comes to them. */
const AHEAD_SCREENS = 2;

export function LogLines({ lines, linked, search, follow, atEnd, wrap, onFollow, onLink, onTop, onEnd }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const newest = lines.at(-1)?.seq ?? 0;
  const [seen, setSeen] = useState(newest);
  const unseen = follow || !atEnd ? 0 : countAfter(lines, seen);
  const dated = useMemo(() => spansDays(lines), [lines]);
  const virtual = useVirtualizer({
    count: lines.length,
    estimateSize: () => LINE_HEIGHT,
    getScrollElement: () => scroller.current,
    overscan: 30,
    getItemKey: (index) => lines[index]!.seq,
    initialRect: { width: 800, height: 560 },
  });
  useReadingPlace(lines, scroller, virtual, !follow);
  useEffect(() => {
    if (!follow) return;
    virtual.scrollToIndex(lines.length - 1, { align: "end" });
    setSeen(newest);
  }, [follow, newest, lines.length, virtual]);
  useEffect(() => {
    const index = linked === undefined ? -1 : indexOf(lines, linked);
    if (index >= 0) virtual.scrollToIndex(index, { align: "center" });
    // Once per link: later lines must not pull the view back.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [linked]);
  const loadOlder = useOneAtATime(onTop);
  const loadNewer = useOneAtATime(onEnd);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = scroller.current!;
    const below = scrollHeight - scrollTop - clientHeight;
    const ahead = Math.max(AT_EDGE_PX, AHEAD_SCREENS * clientHeight);
    if (below < AT_EDGE_PX) setSeen(newest);
    if (below < ahead && !atEnd) loadNewer();
    if (scrollTop < ahead && !follow) loadOlder();
  };
  // What is shorter than the screen is never scrolled.
  useEffect(() => {
    const { scrollHeight, clientHeight } = scroller.current!;
    if (scrollHeight > clientHeight) return;
    loadOlder();
    if (!atEnd) loadNewer();
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [lines]);
  // Only the user's own wheel, touch or key ends following: our scrolling must not.
  const leave = () => follow && onFollow(false);
  return (
    <div className={classes.frame}>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- a scrolling region */}
      <div
        ref={scroller}
        className={classes.lines}
        role="log"
        aria-label="Log lines"
        aria-live="off"
        data-wrap={wrap || undefined}
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
        tabIndex={0}
        onScroll={onScroll}
        onWheel={(event) => event.deltaY < 0 && leave()}
        onTouchMove={leave}
        onKeyDown={(event) => ["PageUp", "ArrowUp", "Home"].includes(event.key) && leave()}
      >
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((item) => (
            <div
              key={item.key}
              data-index={item.index}
              ref={virtual.measureElement}
              className={classes.row}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <LogLine
                line={lines[item.index]!}
                linked={lines[item.index]!.seq === linked}
                dated={dated}
                search={search}
                onLink={onLink}
              />
            </div>
          ))}
        </div>
      </div>
      {!follow && (unseen > 0 || !atEnd) && (
        <Button className={classes.more} leftSection={<IconArrowDown size={14} />} onClick={() => onFollow(true)}>
          {unseen > 0 ? plural(unseen, "new line") : "Newest lines"}
        </Button>
      )}
    </div>
  );
}

/** Whether a time of day alone would not tell when the lines were printed. */
function spansDays(lines: readonly LogEntry[]): boolean {
  const [first, last] = [lines[0], lines.at(-1)];
  return first !== undefined && last !== undefined && new Set([first.time, last.time, serverNow()].map(day)).size > 1;
}

function countAfter(lines: readonly LogEntry[], seq: number): number {
  let count = 0;
  for (let i = lines.length - 1; i >= 0 && lines[i]!.seq > seq; i--) count += 1;
  return count;
}

function useOneAtATime(action: () => Promise<void>): () => void {
  const busy = useRef(false);
  return () => {
    if (busy.current) return;
    busy.current = true;
    void action().finally(() => {
      busy.current = false;
    });
  };
}
