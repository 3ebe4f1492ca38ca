import { describe, expect, it } from "vitest";
import { smoothed, smoothingOf } from "./smoothing";

const KINDS = [
  { kind: "ema", amount: 0.9 },
  { kind: "gaussian", amount: 2 },
  { kind: "mean", amount: 5 },
] as const;

describe("smoothing", () => {
  it.each(KINDS)("of kind $kind keeps a constant, and passes over NaN", (smoothing) => {
    const [first, gap, ...rest] = smoothed([3, NaN, 3, 3, 3, 3], smoothing);
    expect(gap).toBeNaN();
    for (const value of [first, ...rest]) expect(value).toBeCloseTo(3, 12);
  });

  it("by EMA follows a step by its weight", () => {
    expect(smoothed([0, 1], { kind: "ema", amount: 0.5 })[1]).toBeCloseTo(2 / 3);
  });

  it("by a Gaussian is the same from both ends", () => {
    const values = [0, 0, 0, 1, 0, 0, 0];
    const found = smoothed(values, { kind: "gaussian", amount: 1 });
    expect(found[2]).toBeCloseTo(found[4]!, 12);
    expect(found[3]).toBeCloseTo(0.4, 2);
  });

  it("by a running mean leaves nothing of a spike behind it, however large", () => {
    const values = Array.from({ length: 12 }, (_, at) => (at === 4 ? 1e16 : 1));
    expect(smoothed(values, { kind: "mean", amount: 3 }).slice(7)).toEqual([1, 1, 1, 1, 1]);
  });

  it("asked for in a URL is none where the amount does not fit the kind", () => {
    expect(smoothingOf(undefined, 0.6)).toEqual({ kind: "ema", amount: 0.6 });
    expect(smoothingOf("ema", 20)).toBeNull();
    expect(smoothingOf("mean", 20)).toEqual({ kind: "mean", amount: 20 });
    expect(smoothingOf("gaussian", undefined)).toBeNull();
  });
});
