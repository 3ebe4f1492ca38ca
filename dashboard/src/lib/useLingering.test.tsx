import { act, renderHook } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { useLingering } from "./useLingering";

it("stays on for a while after it was on, and only then", () => {
  vi.useFakeTimers();
  const { result, rerender } = renderHook(({ on }) => useLingering(on, 1000), { initialProps: { on: false } });
  expect(result.current).toBe(false);
  rerender({ on: true });
  expect(result.current).toBe(true);
  rerender({ on: false });
  expect(result.current).toBe(true);
  act(() => void vi.advanceTimersByTime(999));
  expect(result.current).toBe(true);
  act(() => void vi.advanceTimersByTime(1));
  expect(result.current).toBe(false);
});
