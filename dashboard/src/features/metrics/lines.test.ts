import { describe, expect, it } from "vitest";
import { curve } from "@/testing/fixtures";
import { fromCurve } from "./curves";
import { bridged, lineOf, stepsBetween, undefinedPlaces, valueAt, type Line } from "./lines";
import { summarize, tellUnplaced } from "./summary";
import type { Unit } from "./units";

type CurvePart = Parameters<typeof curve>[0];

function line(part: CurvePart, { label = "loss", unit = "nats" as Unit } = {}): Line {
  const series = fromCurve(curve(part));
  return lineOf(series, { label, color: 0, unit, place: ({ steps }) => steps });
}

describe("a line", () => {
  it("of a rate is the mean of each bucket, and of anything else its last value", () => {
    const part = { bucket_steps: 10, steps: [9], mean: [5_050], last: [100] };
    expect(line({ ...part, name: "tokens_per_second" }).value).toEqual([5_050]);
    expect(line({ ...part, name: "mfu" }).value).toEqual([5_050]);
    expect(line({ ...part, name: "loss" }).value).toEqual([100]);
  });

  it("goes on from the point of the generation before that it continues from", () => {
    const generation = (number: number, steps: number[]) => line({ generation: number, steps, last: steps });
    expect(bridged(generation(1, [4, 5]), generation(2, [6, 7]))).toEqual({ x: [5, 6, 7], values: [5, 6, 7] });
    expect(bridged(generation(1, [4, 5, 6, 7]), generation(2, [6, 7]))).toEqual({ x: [5, 6, 7], values: [5, 6, 7] });
    expect(bridged(generation(1, [6]), generation(2, [1])).x).toEqual([1]);
    expect(bridged(undefined, generation(2, [1])).x).toEqual([1]);
  });

  it("tells where it was not a number", () => {
    expect(undefinedPlaces([line({ steps: [1, 2, 3], last: [1, "NaN", 2] })])).toEqual([2]);
  });

  it("tells where one step of a bucket was not a number, and how many were", () => {
    const one = line({ bucket_steps: 10, steps: [9, 19, 29], last: [3, 2, 1], nan_count: [0, 1, 0] });
    expect(undefinedPlaces([one])).toEqual([19]);
    expect(summarize([one])).toMatch(/^1 nats at step 29\. .* 1 value is NaN\.$/);
    expect(summarize([one, { ...one, generation: 2 }])).toMatch(/ 2 values are NaN\.$/);
  });

  it("has the value of the newest generation where several stand, smoothed as it is drawn", () => {
    const lines = [line({ last: [5, 4] }), line({ generation: 2, steps: [2, 3], last: [1, 3] })];
    expect(valueAt(lines, 2, null)).toBe(1);
    expect(valueAt(lines, 3, { kind: "mean", amount: 2 })).toBe(2);
    expect(valueAt(lines, 9, null)).toBeUndefined();
  });

  it("is zoomed by steps, whatever its axis counts", () => {
    const timed = { ...line({ steps: [10, 20, 30, 40] }), x: [1.5, 2.5, 3.5, 4.5] };
    expect(stepsBetween([timed], 2, 4)).toEqual({ from: 20, to: 30 });
    expect(stepsBetween([timed], 2, 3)).toBeNull();
  });
});

describe("the sentence of a chart", () => {
  it("says the newest value and both extremes, with their steps", () => {
    expect(summarize([line({ steps: [1, 2, 3], last: [5, 3, 4] })])).toBe(
      "4 nats at step 3. Min 3 at step 2, max 5 at step 1.",
    );
  });

  it("names a spike of one step among thousands, and the steps in which it was", () => {
    const zoomedOut = {
      bucket_steps: 1000,
      steps: [122_999, 123_999],
      minimum: [1, 1],
      maximum: [2, 10_000],
      last: [1, 1.5],
    };
    expect(summarize([line(zoomedOut)])).toBe(
      "1.5 nats at step 123,999. Min 1 in steps 122,000–122,999, max 10,000 in steps 123,000–123,999.",
    );
  });

  it("says no unit where the loss is a user's own, and one value where all are equal", () => {
    expect(summarize([line({ steps: [1], last: [5] }, { unit: "" })])).toBe("5 at step 1.");
  });

  it("tells the first metric alone, or every one by its name", () => {
    const lines = [line({}), line({ last: [7, 7] }, { label: "eval_loss" })];
    expect(summarize(lines)).toBe("4 nats at step 2. Min 4 at step 2, max 5 at step 1.");
    expect(summarize(lines, true)).toBe(
      "loss: 4 nats at step 2. Min 4 at step 2, max 5 at step 1. eval_loss: 7 nats at step 2.",
    );
  });

  it("counts what has no place on a log scale, beside what is no number at all", () => {
    expect(tellUnplaced([line({ steps: [1, 2, 3], last: [-1, 0, 2] }), line({ last: ["NaN", "-Infinity"] })])).toBe(
      "2 values at or below 0 are not shown.",
    );
    expect(tellUnplaced([line({})])).toBeNull();
  });

  it("says when there is nothing", () => {
    expect(summarize([])).toBe("Nothing reported yet.");
  });
});
