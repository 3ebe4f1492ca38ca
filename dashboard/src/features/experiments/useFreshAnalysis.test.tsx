import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, expect, it, vi } from "vitest";
import { keys } from "@/lib/keys";
import { createQueryClient } from "@/lib/query";
import { experiment, experimentAnalysis, trialCounts } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { useFreshAnalysis } from "./useFreshAnalysis";

const ANALYZE = "POST /api/v1/experiments/exp1/analyze";

afterEach(() => void vi.useRealTimers());

it("analyzes anew while jobs change their states all the time", async () => {
  vi.useFakeTimers();
  const made = experimentAnalysis({ made_at: new Date().toISOString() });
  const seen = mockApi({
    "GET /api/v1/experiments/exp1/analysis": () => ok(made),
    [ANALYZE]: () => ok(experimentAnalysis({ made_at: new Date().toISOString() })),
  });
  const client = createQueryClient();
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const going = experiment({ analyzed_at: made.made_at, trials: trialCounts({ total: 9, completed: 8, running: 1 }) });
  const { result } = renderHook(() => useFreshAnalysis(going), { wrapper });
  await act(() => vi.advanceTimersByTimeAsync(100));
  expect(result.current.source.data).toBeDefined();
  const count = (asked: string) => seen.filter(({ method, path }) => `${method} ${path}` === asked).length;
  expect(count(ANALYZE)).toBe(0);
  for (let second = 0; second < 30; second += 2) {
    await act(async () => {
      void client.invalidateQueries({ queryKey: keys.experiments });
      await vi.advanceTimersByTimeAsync(2_000);
    });
  }
  expect(count(ANALYZE)).toBe(1);
  expect(count("GET /api/v1/experiments/exp1/analysis")).toBe(1);
});

it("analyzes what has ended meanwhile when somebody comes back to the page", async () => {
  const hidden = vi.spyOn(document, "hidden", "get").mockReturnValue(true);
  const visibility = vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
  const seen = mockApi({ [ANALYZE]: () => ok(experimentAnalysis()) });
  const client = createQueryClient();
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const { result } = renderHook(() => useFreshAnalysis(experiment({ analyzed_at: null })), { wrapper });
  await waitFor(() => expect(result.current.source.data).toBeNull());
  const analyses = () => seen.filter(({ method, path }) => `${method} ${path}` === ANALYZE);
  await waitFor(() => expect(seen.some(({ path }) => path.endsWith("/auth/me"))).toBe(true));
  expect(analyses()).toHaveLength(0);
  hidden.mockReturnValue(false);
  visibility.mockReturnValue("visible");
  act(() => void document.dispatchEvent(new Event("visibilitychange")));
  await waitFor(() => expect(analyses()).toHaveLength(1));
});
