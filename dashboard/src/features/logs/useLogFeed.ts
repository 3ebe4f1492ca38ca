import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { LogEntry } from "@/lib/types";
import { useStream } from "@/lib/useStream";
import { fetchLogs, logsQuery, logsStreamPath, type LogFilter } from "./api/logs";
import {
  addWaiting,
  isSearchedByServer,
  lastStates,
  passes,
  windowOf,
  withGap,
  withNewer,
  withOlder,
  withStreamed,
  type LogWindow,
} from "./buffer";

const NONE: readonly LogEntry[] = [];
/** Lines that the stream cannot bring are asked for so often: of an ended job, or of a search that only the server can do. */
const POLL_MS = 2000;

/** One page, those before and after it on demand, and at its end what the stream brings; lines are appended once per frame. */
export function useLogFeed(jobId: string, filter: LogFilter, live: boolean) {
  const query = useQuery(logsQuery(jobId, filter));
  const { window, change } = useWindow(query.data);
  const atEnd = window !== undefined && window.newer === null;
  const byServer = isSearchedByServer(filter);
  const enqueue = useFrameBatches(
    useCallback((lines: LogEntry[]) => change((old) => withStreamed(old, lines)), [change]),
  );
  const status = useStream({
    path: live && atEnd && !byServer ? logsStreamPath(jobId) : null,
    after: window?.streamFrom ?? null,
    onFrame: (frame) => {
      const line = frame.data as unknown as LogEntry;
      if (passes(line, filter)) enqueue(line);
    },
    onMissed: () => change(withGap),
  });
  const loadOlder = useCallback(async () => {
    if (window?.older == null) return;
    const page = await fetchLogs(jobId, filter, { before: window.older });
    change((old) => (old.older === window.older ? withOlder(old, page) : old));
  }, [jobId, filter, window?.older, change]);
  const loadAfter = useCallback(
    async (after: number) => {
      const page = await fetchLogs(jobId, filter, { after });
      change((old) => withNewer(old, page));
    },
    [jobId, filter, change],
  );
  const loadNewer = useCallback(async () => {
    if (window?.newer != null) await loadAfter(window.newer);
  }, [window?.newer, loadAfter]);
  const isOpen = atEnd && !window.complete;
  usePolling(isOpen && (!live || byServer), () => loadAfter(placeOfPoll(window!, filter)));
  const lines = useMemo(() => lastStates(window?.lines ?? NONE), [window?.lines]);
  return { query, lines, status, atEnd, arriving: !live && isOpen && window.arriving, loadOlder, loadNewer };
}

/** With context, the last match is asked for again: the lines after it may not have been there. */
function placeOfPoll({ lines, streamFrom }: LogWindow, { context }: LogFilter): number {
  const last = context ? lines.findLast((line) => !line.context) : undefined;
  return last === undefined ? streamFrom : last.seq - 1;
}

/** What has become of a page. Changes that were begun before another page came are dropped. */
function useWindow(page: Parameters<typeof windowOf>[0] | undefined) {
  const opened = useMemo(() => page && windowOf(page), [page]);
  const [grown, setGrown] = useState<{ from: LogWindow; window: LogWindow }>();
  const change = useCallback(
    (step: (window: LogWindow) => LogWindow) => {
      if (opened) setGrown((old) => ({ from: opened, window: step(old?.from === opened ? old.window : opened) }));
    },
    [opened],
  );
  return { window: grown && grown.from === opened ? grown.window : opened, change };
}

/** Calls `action` again and again while `on`; an attempt that fails is made up for by the next. */
function usePolling(on: boolean, action: () => Promise<void>) {
  const latest = useRef(action);
  useEffect(() => {
    latest.current = action;
  });
  useEffect(() => {
    if (!on) return;
    let stopped = false;
    let timer: ReturnType<typeof setTimeout>;
    const plan = () => {
      if (!stopped) timer = setTimeout(() => void latest.current().then(plan, plan), POLL_MS);
    };
    plan();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [on]);
}

/** Hands lines over once per frame. A tab in the background has no frames: lines wait until it is looked at, a bounded number of them. */
export function useFrameBatches(add: (lines: LogEntry[]) => void): (line: LogEntry) => void {
  const waiting = useRef<LogEntry[]>([]);
  const frame = useRef(0);
  useEffect(
    () => () => {
      cancelAnimationFrame(frame.current);
      frame.current = 0;
      waiting.current = [];
    },
    [add],
  );
  return useCallback(
    (line: LogEntry) => {
      addWaiting(waiting.current, line);
      frame.current ||= requestAnimationFrame(() => {
        frame.current = 0;
        add(waiting.current.splice(0));
      });
    },
    [add],
  );
}
