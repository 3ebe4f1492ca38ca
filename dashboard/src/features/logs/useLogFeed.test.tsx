import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { expect, it, vi } from "vitest";
import { createQueryClient } from "@/lib/query";
import type { LogEntry } from "@/lib/types";
import { logLine } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { MOST_LINES, withStreamed } from "./buffer";
import { useFrameBatches, useLogFeed } from "./useLogFeed";

const LOGS = "GET /api/v1/training/jobs/job1/logs";

it("asks for no more lines once the log is left, though an answer was still on its way", async () => {
  vi.useFakeTimers();
  const page = { next_after: 1, next_before: null, at_end: true, arriving: true, complete: false };
  let answer = () => {};
  const late = new Promise<ReturnType<typeof ok>>((resolve) => {
    answer = () => resolve(ok({ ...page, items: [] }));
  });
  const seen = mockApi({
    [LOGS]: ({ url }) => (url.searchParams.has("tail") ? ok({ ...page, items: [logLine(1)] }) : late),
  });
  const client = createQueryClient();
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const { unmount } = renderHook(() => useLogFeed("job1", FILTER, false), { wrapper });
  await act(() => vi.advanceTimersByTimeAsync(2_100));
  expect(seen).toHaveLength(2);
  unmount();
  answer();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(seen).toHaveLength(2);
});

it("keeps a bounded number of lines in a background tab, which draws no frames, and shows the newest without a hole", () => {
  let frame = () => {};
  const frames = vi.spyOn(globalThis, "requestAnimationFrame").mockImplementation((draw) => {
    frame = () => draw(0);
    return 1;
  });
  const add = vi.fn<(lines: LogEntry[]) => void>();
  const { result } = renderHook(() => useFrameBatches(add));
  const last = 5 * MOST_LINES + 7;
  for (let seq = 1; seq <= last; seq++) result.current(logLine(seq));
  expect(add).not.toHaveBeenCalled();
  frame();
  frames.mockRestore();
  const [lines] = add.mock.calls[0]!;
  expect(lines.length).toBeLessThan(2 * MOST_LINES);
  const window = { lines: [logLine(0)], older: null, newer: null, streamFrom: 0, arriving: false, complete: false };
  const seqs = withStreamed(window, lines).lines.map(({ seq }) => seq);
  expect(seqs).toEqual(Array.from({ length: MOST_LINES }, (_, index) => last - MOST_LINES + 1 + index));
});

const FILTER = {};
