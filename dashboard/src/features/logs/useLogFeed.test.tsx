import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { expect, it, vi } from "vitest";
import { createQueryClient } from "@/lib/query";
import { logLine } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { useLogFeed } from "./useLogFeed";

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

const FILTER = {};
