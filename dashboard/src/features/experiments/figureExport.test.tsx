import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { experimentAnalysis } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

describe("a figure that the coordinator cannot draw", () => {
  it("is refused with the way out, not by a download that fails in silence", async () => {
    const seen = mockApi({
      "GET /api/v1/experiments/exp1/analysis": () => ok(experimentAnalysis()),
      "GET /api/v1/experiments/exp1/export": () =>
        problem(
          501,
          "figures_unavailable",
          "figures are drawn with matplotlib; run: pip install 'paceline[experiments]'",
        ),
    });
    renderApp("/experiments/exp1");
    await userEvent.click(await screen.findByRole("button", { name: "Export" }));
    await userEvent.click(await screen.findByRole("menuitem", { name: "Throughput (PNG)" }));
    expect(await screen.findByText(/pip install 'paceline\[experiments\]'/)).toBeVisible();
    const asked = seen.find(({ path }) => path.endsWith("/export"))!.url.searchParams;
    expect(Object.fromEntries(asked)).toEqual({ format: "png", figure: "throughput" });
  });
});
