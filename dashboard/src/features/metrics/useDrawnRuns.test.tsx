import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { startOf } from "@/lib/jobs";
import { createQueryClient } from "@/lib/query";
import type { Job } from "@/lib/types";
import { curve, job, metrics } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { severalLines } from "./runs";
import { useDrawnRuns } from "./useDrawnRuns";

const START = Date.parse("2026-11-20T10:00:00Z") / 1000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Draws the job beside another one, zoomed to steps that it made 40 minutes after its start. */
async function drawn(part: Partial<Job>) {
  const other = job({ id: "job2", name: "baseline", started_at: "2026-11-20T10:00:00Z", ...part });
  const zoomed = curve({ steps: [5000, 5001], times: [START + 2400, START + 2401] });
  const seen = mockApi({
    "GET /api/v1/training/jobs/job2": () => ok(other),
    "GET /api/v1/metrics/jobs/job2": () => ok(metrics({ curves: [zoomed] })),
  });
  const client = createQueryClient();
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const range = { from: 5000, to: 6000 };
  const { result } = renderHook(() => useDrawnRuns(["job2"], ["loss"], range), { wrapper });
  await act(() => vi.advanceTimersByTimeAsync(100));
  const timesAsked = () => seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job2").length;
  return { other, result, timesAsked };
}

it("counts the time of another run from its own start, whatever part of it is shown", async () => {
  const { other, result } = await drawn({ state: "completed" });
  expect(result.current.runs).toMatchObject([{ id: "job2", name: "baseline", startedAt: startOf(other) }]);
  const [line] = severalLines(result.current.runs, ["loss"], () => "nats", "time");
  expect(line!.x).toEqual([2400, 2401]);
});

it("asks again for the curves of a run that goes on, and not for those of one that has ended", async () => {
  for (const [state, times] of [
    ["running", 2],
    ["completed", 1],
  ] as const) {
    const { timesAsked } = await drawn({ state });
    await act(() => vi.advanceTimersByTimeAsync(5_000));
    expect([state, timesAsked()]).toEqual([state, times]);
  }
});
