import { describe, expect, it } from "vitest";
import { curve } from "@/testing/fixtures";
import { axesOf, placeTicks, placeWords, placing, type Run } from "./axes";
import { fromCurve } from "./curves";

const loss = fromCurve(curve({ steps: [1, 2, 3], last: [5, 4, 3], times: [1010, 1020, 1040] }));

function run(values: Record<string, number[]>): Run {
  const series = Object.entries(values).map(([name, last]) => fromCurve(curve({ name, steps: [1, 2, 3], last })));
  return { startedAt: 1000, series: (name) => series.filter((one) => one.name === name) };
}

const TRAINED = run({
  first_sample: [0, 64, 128],
  samples: [64, 64, 64],
  epoch_samples: [128, 128, 128],
  samples_per_second: [10, 10, 10],
  tokens_per_second: [2560, 2560, 2560],
});

describe("the x axis", () => {
  it("counts time from the start of the job, and samples and epochs to the end of each step", () => {
    expect(placing("time", TRAINED)(loss)).toEqual([10, 20, 40]);
    expect(placing("samples", TRAINED)(loss)).toEqual([64, 128, 192]);
    expect(placing("tokens", TRAINED)(loss)).toEqual([64 * 256, 128 * 256, 192 * 256]);
    expect(placing("epoch", TRAINED)(loss)).toEqual([0.5, 1, 1.5]);
  });

  it("places what is reported more seldom, or in coarser buckets, between the steps that are known", () => {
    const between = fromCurve(curve({ steps: [2, 4], last: [1, 1] }));
    expect(placing("samples", TRAINED)(between)).toEqual([128, 256]);
  });

  it("takes the epoch that a program reports by itself", () => {
    expect(placing("epoch", run({ epoch: [0.25, 0.5, 0.75] }))(loss)).toEqual([0.25, 0.5, 0.75]);
  });

  it("offers what the reported metrics allow", () => {
    expect(axesOf(["loss"])).toEqual(["step", "time"]);
    expect(axesOf(["loss", "epoch"])).toEqual(["step", "time", "epoch"]);
    expect(axesOf(["first_sample", "samples", "epoch_samples"])).toEqual(["step", "time", "samples", "epoch"]);
  });

  it("has ticks of one unit", () => {
    expect(placeTicks("time", [0, 60, 120])).toEqual(["0 s", "60 s", "120 s"]);
    expect(placeTicks("time", [0, 3600, 7200])).toEqual(["0 h", "1 h", "2 h"]);
    expect(placeTicks("step", [0, 0.5, 1000])).toEqual(["0", "", "1.0k"]);
    expect(placeWords("epoch", 1.5)).toBe("epoch 1.5");
    expect(placeWords("tokens", 65_536)).toBe("65.54k tokens");
  });
});
