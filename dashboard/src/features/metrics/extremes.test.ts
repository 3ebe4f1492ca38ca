import { describe, expect, it } from "vitest";
import { peaks } from "./extremes";

const flat = (length: number, at: Record<number, number> = {}) => Array.from({ length }, (_, index) => at[index] ?? 0);

describe("extremes that stand out", () => {
  it("are single buckets far above those on both sides, also beside a smaller part of the same spike", () => {
    expect(peaks(flat(50, { 20: 100 }), 8)).toEqual([20]);
    expect(peaks(flat(50, { 20: 100, 21: 90 }), 8)).toEqual([20, 21]);
    expect(peaks(flat(50, { 0: 100, 49: 100 }), 8)).toEqual([0, 49]);
  });

  it("are not the noise of a curve, nor a slope, nor what is not a number", () => {
    expect(peaks(flat(50, { 20: 5 }), 8)).toEqual([]);
    expect(
      peaks(
        Array.from({ length: 50 }, (_, at) => 100 * (at % 2)),
        8,
      ),
    ).toEqual([]);
    expect(
      peaks(
        Array.from({ length: 50 }, (_, at) => (at === 0 ? 0 : 20 * at)),
        81,
      ),
    ).toEqual([]);
    expect(peaks(flat(50, { 20: NaN }), 8)).toEqual([]);
  });
});
