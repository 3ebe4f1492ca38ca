import { Button } from "@mantine/core";
import { IconArrowDown } from "@tabler/icons-react";
import { useVirtualizer, type Virtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef, useState, type RefObject, type UIEvent } from "react";
import { clock, dateTime, plural } from "@/lib/format";
import type { LogEntry } from "@/lib/types";
import classes from "./LogLines.module.css";

interface Props {
  lines: readonly LogEntry[];
  linked?: number;
  follow: boolean;
  onFollow(follow: boolean): void;
  onLink(seq: number): void;
  onTop(): Promise<void>;
  /** The end of what is loaded; the stream brings more by itself while the job lives. */
  onEnd(): Promise<void>;
}

const LINE_HEIGHT = 20;
const AT_EDGE_PX = 24;
/** Older lines are fetched this many screens before the reader comes to the first one. */
const AHEAD_SCREENS = 2;

export function LogLines({ lines, linked, follow, onFollow, onLink, onTop, onEnd }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const newest = lines.at(-1)?.seq ?? 0;
  const [seen, setSeen] = useState(newest);
  const unseen = follow ? 0 : countAfter(lines, seen);
  const virtual = useVirtualizer({
    count: lines.length,
    estimateSize: () => LINE_HEIGHT,
    getScrollElement: () => scroller.current,
    overscan: 30,
    getItemKey: (index) => lines[index]!.seq,
    initialRect: { width: 800, height: 560 },
  });
  useAnchor(lines, scroller, virtual, !follow);
  useEffect(() => {
    if (!follow) return;
    virtual.scrollToIndex(lines.length - 1, { align: "end" });
    setSeen(newest);
  }, [follow, newest, lines.length, virtual]);
  useEffect(() => {
    const index = lines.findIndex((line) => line.seq === linked);
    if (index >= 0) virtual.scrollToIndex(index, { align: "center" });
    // Once per link: later lines must not pull the view back.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [linked]);
  const loadOlder = useOneAtATime(onTop);
  const loadNewer = useOneAtATime(onEnd);
  const onScroll = (event: UIEvent<HTMLDivElement>) => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
    const atEnd = scrollHeight - scrollTop - clientHeight < AT_EDGE_PX;
    if (atEnd) {
      setSeen(newest);
      loadNewer();
    } else if (scrollTop < Math.max(AT_EDGE_PX, AHEAD_SCREENS * clientHeight) && !follow) loadOlder();
  };
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
              <Line line={lines[item.index]!} linked={lines[item.index]!.seq === linked} onLink={onLink} />
            </div>
          ))}
        </div>
      </div>
      {!follow && unseen > 0 && (
        <Button className={classes.more} leftSection={<IconArrowDown size={14} />} onClick={() => onFollow(true)}>
          {plural(unseen, "new line")}
        </Button>
      )}
    </div>
  );
}

/** Keeps what is being read in its place when older lines come in above it. */
function useAnchor(
  lines: readonly LogEntry[],
  scroller: RefObject<HTMLDivElement | null>,
  virtual: Virtualizer<HTMLDivElement, Element>,
  reading: boolean,
) {
  const oldest = lines[0]?.seq;
  const before = useRef(oldest);
  useLayoutEffect(() => {
    const added = lines.findIndex(({ seq }) => seq === before.current);
    before.current = oldest;
    if (reading && added > 0 && scroller.current) scroller.current.scrollTop += virtual.measurementsCache[added]!.start;
    // Only older lines move what is read: newer ones come in below it.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [oldest]);
}

function Line({ line, linked, onLink }: { line: LogEntry; linked: boolean; onLink(seq: number): void }) {
  return (
    <div className={classes.line} data-level={line.level} data-linked={linked || undefined}>
      <button
        type="button"
        className={classes.time}
        title={`${dateTime(line.time)}: link to this line`}
        aria-label={`${clock(line.time)}, link to line ${line.seq}`}
        onClick={() => onLink(line.seq)}
      >
        {clock(line.time)}
      </button>
      <span
        className={classes.rank}
        data-rank={line.rank % 6}
        title={`rank ${line.rank}, generation ${line.generation}`}
      >
        {line.rank}
      </span>
      <span className={classes.text}>{line.text}</span>
    </div>
  );
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
