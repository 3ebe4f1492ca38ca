import { describe, expect, it } from "vitest";
import { metrics, curve } from "@/testing/fixtures";
import { extentOf, readRange, within } from "./stepRange";
import { MetricsStore } from "./store";

describe("a typed range of steps", () => {
  it.each([
    ["10", "200", { from: 10, to: 200 }],
    ["1e2", "1_000", { from: 100, to: 1000 }],
    ["", "50", { from: 0, to: 50 }],
    ["100", "", { from: 100, to: 300 }],
    ["", " ", null],
    ["abc", "", "From step must be a whole number of at least 0."],
    ["0", "1.5", "To step must be a whole number of at least 0."],
    ["100", "50", "From step must be below To step."],
    ["100", "100", "From step must be below To step."],
    ["400", "", "From step must be below 300, the newest step."],
  ])("from '%s' to '%s'", (from, to, meant) => {
    expect(readRange({ from, to }, 300)).toEqual(meant);
  });

  it("needs its end where the newest step is not known", () => {
    expect(readRange({ from: "100", to: "" }, undefined)).toBe("Enter a To step as well.");
  });
});

describe("the shown range", () => {
  it("goes as far as the data", () => {
    const extent = extentOf([{ steps: [5, 300] }, { steps: [] }, { steps: [1, 250] }]);
    expect(extent).toEqual({ from: 1, to: 300 });
    expect(within({ from: 0, to: 9999 }, extent)).toEqual({ from: 1, to: 300 });
    expect(within({ from: 20, to: 40 }, extent)).toEqual({ from: 20, to: 40 });
  });

  it("stays as it was asked for where there is no data", () => {
    expect(within({ from: 400, to: 500 }, { from: 1, to: 300 })).toEqual({ from: 400, to: 500 });
    expect(within({ from: 400, to: 500 }, extentOf([]))).toEqual({ from: 400, to: 500 });
    expect(within(null, { from: 1, to: 300 })).toBeNull();
  });

  it("grows with a run that goes on", () => {
    const store = new MetricsStore(metrics({ names: ["loss"], curves: [curve()] }), { from: 0, to: 9999 }, [0]);
    expect(store.shownRange).toEqual({ from: 1, to: 2 });
    store.apply({ rank: 0, generation: 1, step: 3, time: 0, values: { loss: 1 } } as never);
    expect(store.shownRange).toEqual({ from: 1, to: 3 });
  });
});
