import { describe, expect, it } from "vitest";
import { jobMedia, loggedHistogram, mediaKey } from "@/testing/fixtures";
import { histogramWords, nearest, resampled, RIDGE_PLACES, ridgesOf, sharedKeys, shownRanks, stepsOf } from "./media";

const RUNS = ["a", "b"].map((id) => ({ id, name: id, live: false }));

describe("the keys of several runs", () => {
  const keys = sharedKeys(RUNS, [
    jobMedia(mediaKey({ key: "z" }), mediaKey({ key: "a", steps: [5, 30] })),
    jobMedia(mediaKey({ key: "z", steps: [15] }), mediaKey({ key: "z", kind: "table" })),
  ]);

  it("stand once each, with the runs that have them", () => {
    expect(keys.map(({ key, kind, runs }) => [key, kind, runs.map(({ run }) => run.id)])).toEqual([
      ["a", "images", ["a"]],
      ["z", "images", ["a", "b"]],
      ["z", "table", ["b"]],
    ]);
    expect(sharedKeys(RUNS, [undefined, undefined])).toEqual([]);
  });

  it("have all steps of all of them, or those of a range", () => {
    expect(stepsOf(keys, null)).toEqual([5, 10, 15, 20, 30]);
    expect(stepsOf(keys, { from: 6, to: 20 })).toEqual([10, 15, 20]);
  });
});

it("shows the last step before the wanted one, else the first", () => {
  expect([4, 10, 14, 99].map((wanted) => nearest([10, 20], wanted))).toEqual([10, 10, 10, 20]);
  expect(nearest([], 5)).toBeUndefined();
});

it("shows the chosen ranks that have it, else the first few", () => {
  const key = mediaKey({ ranks: [0, 1, 2, 3, 4, 5] });
  expect(shownRanks(key, [])).toEqual([0, 1, 2, 3]);
  expect(shownRanks(key, [5, 9])).toEqual([5]);
  expect(shownRanks(key, [9])).toEqual([0, 1, 2, 3]);
});

describe("histograms in even bins", () => {
  const sum = (heights: readonly number[]) => heights.reduce((all, one) => all + one, 0);

  it("keep their counts, whatever their own edges are", () => {
    expect(sum(resampled({ edges: [0, 1, 2], counts: [1, 3] }, -1, 5))).toBeCloseTo(4);
    expect(sum(resampled({ edges: [0, 0, 2], counts: [5, 1] }, 0, 2))).toBeCloseTo(6);
    expect(sum(resampled({ edges: [-1e308, 0, 1e308], counts: [2, 2] }, -1e308, 1e308))).toBeCloseTo(4);
  });

  it("share one range", () => {
    const items = [
      { step: 1, histogram: loggedHistogram({ edges: [-4, 0], counts: [2] }) },
      { step: 2, histogram: loggedHistogram({ edges: [], counts: [], least: null, most: null }) },
      { step: 3, histogram: loggedHistogram({ edges: [0, 4], counts: [2] }) },
    ];
    const drawn = ridgesOf({ items })!;
    expect([drawn.least, drawn.most, drawn.ridges.map(({ step }) => step)]).toEqual([-4, 4, [1, 3]]);
    expect(sum(drawn.ridges[0]!.heights.slice(RIDGE_PLACES / 2))).toBeCloseTo(0);
    expect(ridgesOf({ items: [items[1]!] })).toBeNull();
  });
});

it("tells a histogram in a sentence, with what is not finite", () => {
  expect(histogramWords(loggedHistogram())).toBe("4 values from 0 to 2, mean 1.25, std 0.5.");
  const odd = { values: 3, nans: 2, infs: 1, mean: null, std: null, least: null, most: null };
  expect(histogramWords(loggedHistogram(odd))).toBe("3 values (2 NaN, 1 infinite), none of them finite.");
});
