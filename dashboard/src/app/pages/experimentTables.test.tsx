import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { experiment, me, page, trial } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

describe("the trials of an experiment", () => {
  const of = (index: number, metric: number | null, state: "completed" | "waiting" | "running") =>
    trial({ index, metric, state, job: null, values: { "optimizer.lr": index } });
  const found = [of(0, 3, "completed"), of(1, null, "waiting"), of(2, 1, "completed"), of(3, 2, "running")];

  it.each([
    ["minimize", ["2", "3", "0", "1"], ["0", "3", "2", "1"]],
    ["maximize", ["0", "3", "2", "1"], ["2", "3", "0", "1"]],
  ])(
    "are in the order of the grid; to %s, a click has the best first, and none without a metric",
    async (goal, best, worst) => {
      mockApi({
        "GET /api/v1/experiments/exp1": () => ok(experiment({ spec: { metric: { name: "loss", goal } } })),
        "GET /api/v1/experiments/exp1/trials": () => ok(page(found)),
      });
      renderApp("/experiments/exp1?tab=trials");
      const table = await screen.findByRole("table", { name: "Trials" });
      const indices = () =>
        within(table)
          .getAllByRole("row")
          .slice(1)
          .map((row) => row.children[0]!.textContent);
      expect(indices()).toEqual(["0", "1", "2", "3"]);
      await userEvent.click(within(table).getByRole("button", { name: "Loss" }));
      expect(indices()).toEqual(best);
      await userEvent.click(within(table).getByRole("button", { name: "Loss" }));
      expect(indices()).toEqual(worst);
      await userEvent.click(within(table).getByRole("button", { name: "State" }));
      expect(indices()).toEqual(["3", "1", "0", "2"]);
    },
  );
});

describe("the configurations of an experiment", () => {
  const headers = async () => {
    const table = await screen.findByRole("table", { name: "Configurations" });
    return within(table)
      .getAllByRole("columnheader")
      .map(({ textContent }) => textContent);
  };

  it("begin on a phone with what they are ordered by", async () => {
    const wide = window.matchMedia;
    const spy = vi.spyOn(window, "matchMedia").mockImplementation((query) => ({
      ...wide(query),
      matches: query.includes("700px"),
    }));
    onTestFinished(() => spy.mockRestore());
    mockApi();
    renderApp("/experiments/exp1");
    expect((await headers()).slice(0, 2)).toEqual(["Samples per second", "Strategy"]);
  });

  it("begin with their fields where there is room", async () => {
    mockApi();
    renderApp("/experiments/exp1");
    const all = await headers();
    expect(all.slice(0, 2)).toEqual(["Strategy", "Ranks"]);
    expect(all.filter((name) => name === "Samples per second")).toHaveLength(1);
  });
});

describe("a viewer", () => {
  it.each(["running", "paused"] as const)("is told why nothing of a %s experiment can be changed", async (state) => {
    mockApi({
      "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer" }),
      "GET /api/v1/experiments/exp1": () => ok(experiment({ state })),
    });
    renderApp("/experiments/exp1?tab=trials");
    await screen.findByRole("table", { name: "Trials" });
    for (const name of ["Run the best one longer", "Analyze again", state === "running" ? "Pause" : "Resume"]) {
      const button = screen.getByRole("button", { name });
      expect(button).toHaveAttribute("aria-disabled", "true");
      expect(button).toHaveAccessibleDescription("Your role is viewer: only members and admins may do this.");
    }
  });
});
