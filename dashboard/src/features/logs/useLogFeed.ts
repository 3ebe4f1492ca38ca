import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import type { LogEntry } from "@/lib/types";
import { useStream } from "@/lib/useStream";
import { fetchLogs, logsQuery, logsStreamPath, type LogFilter } from "./api/logs";
import { merge, passes } from "./buffer";

const NONE: readonly LogEntry[] = [];

/** The newest page, older ones on demand, and what the stream brings; lines are appended once per frame. */
export function useLogFeed(jobId: string, filter: LogFilter, live: boolean) {
  const query = useQuery(logsQuery(jobId, filter));
  const [grown, setGrown] = useState<{ page: unknown; lines: readonly LogEntry[] }>({ page: null, lines: NONE });
  const [exhausted, setExhausted] = useState(false);
  const lines = grown.page === query.data ? grown.lines : (query.data?.items ?? NONE);

  const add = useCallback(
    (more: readonly LogEntry[]) => {
      setGrown((old) => ({
        page: query.data,
        lines: merge(old.page === query.data ? old.lines : (query.data?.items ?? NONE), more),
      }));
    },
    [query.data],
  );
  const enqueue = useFrameBatches(add);
  const status = useStream({
    path: live && query.data ? logsStreamPath(jobId) : null,
    after: query.data?.next_after ?? null,
    onFrame: (frame) => {
      const line = frame.data as unknown as LogEntry;
      if (passes(line, filter)) enqueue(line);
    },
    onMissed: () => void query.refetch(),
  });
  const loadOlder = useCallback(async () => {
    const oldest = lines[0]?.seq;
    if (oldest === undefined || exhausted) return;
    const page = await fetchLogs(jobId, filter, { before: oldest, tail: true });
    if (page.items.length === 0) setExhausted(true);
    add(page.items);
  }, [jobId, filter, lines, exhausted, add]);
  const loadNewer = useCallback(async () => {
    const newest = lines.at(-1)?.seq;
    if (live || newest === undefined) return;
    add((await fetchLogs(jobId, filter, { after: newest })).items);
  }, [jobId, filter, live, lines, add]);
  return { query, lines, status, loadOlder, loadNewer };
}

function useFrameBatches(add: (lines: readonly LogEntry[]) => void): (line: LogEntry) => void {
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
      waiting.current.push(line);
      frame.current ||= requestAnimationFrame(() => {
        frame.current = 0;
        add(waiting.current.splice(0));
      });
    },
    [add],
  );
}
