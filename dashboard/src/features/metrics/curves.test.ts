import { describe, expect, it } from "vitest";
import { curve, metrics } from "@/testing/fixtures";
import { chartsFor } from "./catalog";
import { align, append, coarsen, emptySeries, fromCurve, MOST_BUCKETS, stack } from "./curves";
import { MetricsStore } from "./store";

describe("buckets", () => {
  it("merges a live point into the bucket it belongs to, keeping the extremes", () => {
    const series = fromCurve(
      curve({ bucket_steps: 10, steps: [9, 12], minimum: [1, 2], maximum: [3, 4], last: [2, 3] }),
    );
    expect(append(series, 13, 9, 3)).toBe(true);
    expect(append(series, 20, 5, 4)).toBe(true);
    expect(series).toMatchObject({ steps: [9, 13, 20], minimum: [1, 2, 5], maximum: [3, 9, 5], last: [2, 9, 5] });
  });

  it("drops a step it already has", () => {
    const series = fromCurve(curve());
    expect(append(series, 2, 99, 2)).toBe(false);
    expect(series.last).toEqual([5, 4]);
  });

  it("keeps a spike when it coarsens", () => {
    const series = emptySeries("loss", 0, 1);
    for (let step = 0; step <= MOST_BUCKETS * 2; step++) append(series, step, step === 777 ? 1e6 : 1, step);
    expect(series.bucketSteps).toBe(2);
    expect(series.steps.length).toBeLessThanOrEqual(MOST_BUCKETS + 1);
    expect(Math.max(...series.maximum)).toBe(1e6);
    coarsen(series);
    expect(Math.max(...series.maximum)).toBe(1e6);
    expect(series.steps.at(-1)).toBe(MOST_BUCKETS * 2);
  });

  it("lets NaN hide no other value", () => {
    const series = fromCurve(curve({ bucket_steps: 4, steps: [1], count: [1], last: [1] }));
    append(series, 2, "NaN", 1);
    append(series, 3, 3, 2);
    expect(series).toMatchObject({ steps: [3], minimum: [1], maximum: [3], mean: [2], count: [2] });
  });

  it("knows of a NaN in a bucket, from the coordinator, live and when it coarsens", () => {
    const series = fromCurve(curve({ bucket_steps: 2, steps: [1], count: [2], last: [1], nan_count: [1] }));
    for (const step of [2, 3, 4]) append(series, step, step === 2 ? "NaN" : 1, step);
    expect(series).toMatchObject({ steps: [1, 3, 4], nans: [1, 1, 0] });
    coarsen(series);
    expect(series).toMatchObject({ steps: [3, 4], nans: [2, 0], last: [1, 1] });
  });

  it("weighs the mean by the points of each part, live and where buckets are joined", () => {
    const series = fromCurve(curve({ bucket_steps: 10, steps: [8], count: [8], mean: [100], last: [0] }));
    append(series, 9, 1000, 9);
    expect(series.mean).toEqual([200]);
    append(series, 12, 50, 10);
    coarsen(series);
    expect(series).toMatchObject({ bucketSteps: 20, mean: [185], count: [10], times: [10] });
  });
});

describe("alignment", () => {
  it("marks another series' steps as undefined and its own holes as null", () => {
    const { x, columns } = align(
      [
        { x: [1, 3], values: [10, NaN] },
        { x: [2], values: [20] },
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
    expect(align([{ x: [1, 2], values: [0, 1] }], true).columns[0]).toEqual([null, 1]);
  });

  it("stacks parts, the newest generation winning a repeated step", () => {
    const line = (x: number[], values: number[]) => ({ x, values });
    expect(stack([[line([1, 2], [1, 1]), line([2], [5])], [line([1, 2], [2, 2])]])).toEqual({
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
