import { describe, expect, it } from "vitest";
import { curve, metrics } from "@/testing/fixtures";
import { chartsFor } from "./catalog";
import {
  align,
  append,
  bridged,
  coarsen,
  emptySeries,
  fromCurve,
  MOST_BUCKETS,
  smooth,
  stack,
  undefinedSteps,
} from "./curves";
import { MetricsStore } from "./store";
import { summarize } from "./summary";

describe("buckets", () => {
  it("merges a live point into the bucket it belongs to, keeping the extremes", () => {
    const series = fromCurve(
      curve({ bucket_steps: 10, steps: [9, 12], minimum: [1, 2], maximum: [3, 4], last: [2, 3] }),
    );
    expect(append(series, 13, 9)).toBe(true);
    expect(append(series, 20, 5)).toBe(true);
    expect(series).toMatchObject({ steps: [9, 13, 20], minimum: [1, 2, 5], maximum: [3, 9, 5], last: [2, 9, 5] });
  });

  it("drops a step it already has", () => {
    const series = fromCurve(curve());
    expect(append(series, 2, 99)).toBe(false);
    expect(series.last).toEqual([5, 4]);
  });

  it("keeps a spike when it coarsens", () => {
    const series = emptySeries("loss", 0, 1);
    for (let step = 0; step <= MOST_BUCKETS * 2; step++) append(series, step, step === 777 ? 1e6 : 1);
    expect(series.bucketSteps).toBe(2);
    expect(series.steps.length).toBeLessThanOrEqual(MOST_BUCKETS + 1);
    expect(Math.max(...series.maximum)).toBe(1e6);
    coarsen(series);
    expect(Math.max(...series.maximum)).toBe(1e6);
    expect(series.steps.at(-1)).toBe(MOST_BUCKETS * 2);
  });

  it("lets NaN hide no other value, and tells where it was", () => {
    const series = fromCurve(curve({ bucket_steps: 4, steps: [1], minimum: [1], maximum: [1], last: [1] }));
    append(series, 2, "NaN");
    expect(series).toMatchObject({ minimum: [1], maximum: [1] });
    expect(undefinedSteps([series])).toEqual([2]);
  });
});

describe("smoothing", () => {
  it("starts at the first value, not at zero, and keeps a constant", () => {
    expect(smooth([3, 3, 3], 0.9).map((value) => value.toFixed(6))).toEqual(["3.000000", "3.000000", "3.000000"]);
  });

  it("follows a step by its weight and steps over NaN", () => {
    expect(smooth([0, 1], 0.5)[1]).toBeCloseTo(2 / 3);
    const [first, gap, third] = smooth([2, NaN, 2], 0.5);
    expect([first, third]).toEqual([2, 2]);
    expect(gap).toBeNaN();
  });
});

describe("alignment", () => {
  it("marks another series' steps as undefined and its own holes as null", () => {
    const { x, columns } = align(
      [
        { steps: [1, 3], values: [10, NaN] },
        { steps: [2], values: [20] },
      ],
      false,
    );
    expect(x).toEqual([1, 2, 3]);
    expect(columns).toEqual([
      [10, undefined, null],
      [undefined, 20, undefined],
    ]);
  });

  it("has no place for zero on a logarithmic axis", () => {
    expect(align([{ steps: [1, 2], values: [0, 1] }], true).columns[0]).toEqual([null, 1]);
  });

  it("joins a generation to the step it continues from, in the one before", () => {
    const generation = (number: number, steps: number[]) =>
      fromCurve(curve({ generation: number, steps, last: steps, minimum: steps, maximum: steps }));
    expect(bridged(generation(1, [4, 5]), generation(2, [6, 7]))).toEqual({ steps: [5, 6, 7], values: [5, 6, 7] });
    expect(bridged(generation(1, [4, 5, 6, 7]), generation(2, [6, 7]))).toEqual({
      steps: [5, 6, 7],
      values: [5, 6, 7],
    });
    expect(bridged(generation(1, [6]), generation(2, [1])).steps).toEqual([1]);
    expect(bridged(undefined, generation(2, [1])).steps).toEqual([1]);
  });

  it("stacks parts, the newest generation winning a repeated step", () => {
    const part = (generation: number, steps: number[], last: number[]) =>
      fromCurve(curve({ generation, steps, last, minimum: last, maximum: last }));
    expect(stack([[part(1, [1, 2], [1, 1]), part(2, [2], [5])], [part(1, [1, 2], [2, 2])]])).toEqual({
      x: [1, 2],
      columns: [
        [1, 5],
        [3, 7],
      ],
    });
  });
});

describe("the store", () => {
  const record = (generation: number, step: number, loss: number, rank = 0) => ({
    rank,
    generation,
    step,
    time: 0,
    values: { loss },
  });

  it("keeps both generations where steps repeat", () => {
    const store = new MetricsStore(metrics(), null, [0]);
    store.apply(record(1, 3, 3));
    store.apply(record(2, 2, 4.1));
    store.apply(record(2, 3, 3.1));
    expect(store.series("loss").map(({ generation, steps, last }) => ({ generation, steps, last }))).toEqual([
      { generation: 1, steps: [1, 2, 3], last: [5, 4, 3] },
      { generation: 2, steps: [2, 3], last: [4.1, 3.1] },
    ]);
  });

  it("opens a curve for a metric that appears while the job runs", () => {
    const store = new MetricsStore(metrics(), null, [0]);
    store.apply({ rank: 0, generation: 1, step: 3, time: 0, values: { perplexity: 12 } });
    expect(chartsFor(store.names, "nats").map(({ id }) => id)).toEqual(["loss", "perplexity"]);
  });

  it("draws no curve of which samples a step used", () => {
    expect(chartsFor(["loss", "first_sample", "samples"], "nats").map(({ id }) => id)).toEqual(["loss"]);
  });

  it("leaves out other ranks and what a zoomed range excludes, but knows the newest step", () => {
    const store = new MetricsStore(metrics(), { from: 1, to: 2 }, [0]);
    store.apply(record(1, 3, 3));
    store.apply(record(1, 4, 3, 1));
    expect(store.series("loss")[0]!.steps).toEqual([1, 2]);
    expect(store.latest?.step).toBe(3);
  });
});

describe("the summary sentence", () => {
  const [chart] = chartsFor(["loss"], "nats");

  it("says the newest value and the extreme one", () => {
    expect(
      summarize(chart!, [
        fromCurve(curve({ steps: [1, 2, 3], minimum: [5, 3, 4], maximum: [5, 3, 4], last: [5, 3, 4] })),
      ]),
    ).toBe("4 nats at step 3; min 3 near step 2.");
  });

  it("says no unit where the loss is a user's own", () => {
    const [own] = chartsFor(["loss"], "");
    expect(summarize(own!, [fromCurve(curve({ steps: [1], minimum: [5], maximum: [5], last: [5] }))])).toBe(
      "5 at step 1; min 5 near step 1.",
    );
  });

  it("says when there is nothing", () => {
    expect(summarize(chart!, [])).toBe("Nothing reported yet.");
  });
});
