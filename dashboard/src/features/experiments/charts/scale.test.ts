import { describe, expect, it } from "vitest";
import { doublings, extentOf, linear, logarithmic, niceTicks, pathThrough, tight } from "./scale";

describe("the ticks of an axis", () => {
  it("are round and enclose the values", () => {
    expect(niceTicks(0, 1.07)).toEqual([0, 0.25, 0.5, 0.75, 1, 1.25]);
    expect(niceTicks(13, 87)).toEqual([0, 20, 40, 60, 80, 100]);
  });

  it("are one where all values are the same", () => {
    expect(niceTicks(3, 3)).toEqual([3]);
    expect(linear(3, 3, 0, 100).place(3)).toBe(0);
  });

  it("stay within a tight scale", () => {
    const { ticks, place } = tight(0.3, 9.7, 0, 94);
    expect(ticks).toEqual([2, 4, 6, 8]);
    expect([place(0.3), place(9.7)]).toEqual([0, 94]);
  });
});

describe("a log scale", () => {
  it("has powers of ten, equally far apart, of any range", () => {
    const { ticks, place } = logarithmic(0.01, 1e6, 0, 80);
    expect(ticks).toEqual([0.01, 1, 100, 1e4, 1e6]);
    expect(ticks.map(place)).toEqual([0, 20, 40, 60, 80]);
    expect(logarithmic(0.3, 1e30, 0, 80).ticks).toEqual([1, 1e6, 1e12, 1e18, 1e24, 1e30]);
  });

  it("has numbers between them where the range is short", () => {
    expect(logarithmic(0.3, 4, 0, 80).ticks).toEqual([0.5, 1, 2]);
    expect(logarithmic(0.63, 2.1, 0, 80).ticks).toEqual([1, 1.5, 2]);
    expect(logarithmic(0.5, 60, 0, 80).ticks).toEqual([1, 10]);
    expect(logarithmic(2, 2, 0, 80).place(2)).toBe(0);
  });
});

describe("numbers of ranks", () => {
  it("are as far apart as their doublings, and labelled where there is room", () => {
    const { place, ticks } = doublings([1, 2, 4, 8, 4], 0, 300);
    expect([1, 2, 4, 8].map(place)).toEqual([0, 100, 200, 300]);
    expect(ticks).toEqual([1, 2, 4, 8]);
    expect(doublings([6, 7, 8, 64], 0, 100).ticks).toEqual([6, 64]);
  });

  it("stand in the middle where there is one", () => {
    expect(doublings([2], 0, 100).place(2)).toBe(50);
  });
});

describe("a line", () => {
  it("breaks where a value is missing", () => {
    expect(pathThrough([[0, 0], [1, 1], null, [2, 2], [3, 3]])).toBe("M0.0 0.0L1.0 1.0M2.0 2.0L3.0 3.0");
  });

  it("has no extent without values", () => {
    expect(extentOf([null, NaN])).toBeNull();
    expect(extentOf([2, null, -1])).toEqual([-1, 2]);
  });
});
