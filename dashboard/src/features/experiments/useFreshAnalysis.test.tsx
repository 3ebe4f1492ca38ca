import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { expect, it, vi } from "vitest";
import { createQueryClient } from "@/lib/query";
import { experiment, experimentAnalysis } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { useFreshAnalysis } from "./useFreshAnalysis";

const ANALYZE = "POST /api/v1/experiments/exp1/analyze";

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
