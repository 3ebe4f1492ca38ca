import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { expect, it } from "vitest";
import { createQueryClient } from "@/lib/query";
import { mockApi, never } from "@/testing/mockApi";
import { NEW_CHART } from "../ownCharts";
import { chartsQuery, useOrderCharts } from "./charts";

it("shows charts in their new order at once, so that the next move begins with it", async () => {
  mockApi({ "PUT /api/v1/training/charts/order": () => never });
  const client = createQueryClient();
  const { queryKey } = chartsQuery("nlp");
  client.setQueryData(
    queryKey,
    ["a", "b", "c"].map((id) => ({ ...NEW_CHART, id })),
  );
  const wrapper = ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
  const { result } = renderHook(() => useOrderCharts("nlp"), { wrapper });
  await act(async () => result.current.mutate(["b", "a", "c"]));
  expect(client.getQueryData(queryKey)!.map(({ id }) => id)).toEqual(["b", "a", "c"]);
});
