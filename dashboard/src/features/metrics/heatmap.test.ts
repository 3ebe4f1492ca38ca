import { describe, expect, it } from "vitest";
import { heatmap } from "@/testing/fixtures";
import {
  bandLines,
  cell,
  colourRange,
  decode,
  median,
  overMedian,
  ranksOf,
  sentenceOf,
  stepsOf,
  strengthOf,
  summarizeRows,
} from "./heatmap";

const nodeOf = (rank: number) => `node-${rank}`;

describe("a heat map", () => {
  it("has every value in its place, and steps and ranks that its rows and columns stand for", () => {
    const grid = decode(
      heatmap(
        [
          [0.1, 0.2, NaN],
          [0.3, 0.4, 0.5],
        ],
        { ranks: 15, ranks_per_row: 8, first_step: 100, bucket_steps: 10 },
      ),
    );
    expect(cell(grid, 1, 0)).toBeCloseTo(0.3);
    expect(cell(grid, 0, 2)).toBeNaN();
    expect([ranksOf(grid, 0), ranksOf(grid, 1)]).toEqual(["0–7", "8–14"]);
    expect(stepsOf(grid, 2)).toEqual({ from: 120, to: 129 });
  });

  it("names the rank that stands out, of two ranks too", () => {
    const grid = decode(
      heatmap([
        [0.1, 0.1],
        [0.2, NaN],
      ]),
    );
    expect(sentenceOf(grid, summarizeRows(grid), "s", nodeOf)).toBe(
      "Rank 1 on node-1 has the highest mean: 0.2 s, 1.3 times the median of 2 ranks, 0.15 s.",
    );
  });

  it("says that no rank stands out where none does, and that there is nothing where there is nothing", () => {
    const even = decode(heatmap([[0.1], [0.101], [0.1]]));
    expect(sentenceOf(even, summarizeRows(even), "s", nodeOf)).toBe(
      "No rank stands out: the highest mean is 1.0% above the median of 3 ranks, 0.1 s.",
    );
    const zero = decode(heatmap([[0], [0]]));
    expect(sentenceOf(zero, summarizeRows(zero), "s", nodeOf)).toContain(
      "No rank stands out: the highest mean is 0.0% above",
    );
    const ofJob = decode(heatmap([[0.1], [NaN], [NaN]]));
    expect(sentenceOf(ofJob, summarizeRows(ofJob), "s", nodeOf)).toBe(
      "Nothing to compare: only rank 0 has values in these steps. What is measured of the whole job, rank 0 reports.",
    );
    const single = decode(heatmap([[NaN], [0.1], [NaN]]));
    expect(sentenceOf(single, summarizeRows(single), "s", nodeOf)).toBe(
      "Nothing to compare: only rank 1 has values in these steps.",
    );
    const some = decode(heatmap([[0.1], [NaN], [0.3]]));
    expect(sentenceOf(some, summarizeRows(some), "s", nodeOf)).toContain("1.5 times the median of 2 ranks");
    const none = decode(heatmap([[NaN]]));
    expect(sentenceOf(none, summarizeRows(none), "s", nodeOf)).toBe("No rank has reported a value in these steps.");
  });

  it("gives its full colour to one slow rank of a thousand, and none to noise", () => {
    const quiet = Array.from({ length: 1000 }, (_, rank) => [0.1 + (rank % 7) * 0.0005]);
    const calm = colourRange(decode(heatmap(quiet)));
    expect(calm.high - 0.103).toBeGreaterThan(5 * 0.003);
    const slow = colourRange(decode(heatmap([...quiet, [0.2]])));
    expect(slow.high).toBeLessThan(0.2);
    expect(colourRange(decode(heatmap([[0]])))).toEqual({ low: 0, high: 1 });
  });

  it("gives its full colour to the lowest value where that is the bad one, and to the highest of all else", () => {
    const strongest = (name: string) => {
      const grid = decode(
        heatmap(
          [
            [1980, 1990],
            [1400, 1985],
            [1970, NaN],
          ],
          { name },
        ),
      );
      const strengths = [1400, 1985, 1990].map((value) => strengthOf(grid, colourRange(grid), value));
      expect(Math.min(...strengths)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...strengths)).toBeLessThanOrEqual(1);
      return strengths;
    };
    const [slow, usual, fast] = strongest("card/sm_clock_mhz");
    expect(slow).toBe(1);
    expect(slow! - usual!).toBeGreaterThan(0.3);
    expect(usual).toBeGreaterThan(fast!);
    const [low, middle, high] = strongest("busy_seconds");
    expect([low! < middle!, middle! < high!]).toEqual([true, true]);
  });

  it("lists for each row the cell at the bad end", () => {
    const worst = (name: string) => summarizeRows(decode(heatmap([[5, 7, NaN]], { name })))[0]!.worst;
    expect([worst("card/sm_clock_mhz"), worst("busy_seconds")]).toEqual([5, 7]);
  });

  it("over the median shows a slow rank alike, however long a step takes, and no stall of all", () => {
    const grid = overMedian(
      decode(
        heatmap([
          [0.1, 1, 0, NaN],
          [0.1, 1, 0, NaN],
          [0.15, 1.5, 0, 2],
        ]),
      ),
    );
    expect([cell(grid, 2, 0), cell(grid, 2, 1)].map((ratio) => ratio.toFixed(2))).toEqual(["1.50", "1.50"]);
    expect([cell(grid, 0, 0), cell(grid, 0, 1), cell(grid, 2, 3)]).toEqual([1, 1, 1]);
    expect(cell(grid, 0, 2)).toBeNaN(); // of a median of zero nothing is a share
    expect(cell(grid, 0, 3)).toBeNaN();
  });

  it("draws the band over all ranks and the rows that were chosen, without the steps that have no value", () => {
    const [band, line] = bandLines(
      decode(
        heatmap([
          [0.1, NaN, 0.1],
          [0.3, NaN, NaN],
        ]),
      ),
      [1],
      "s",
    );
    expect(band).toMatchObject({ steps: [1, 3] });
    expect(band!.maximum[0]).toBeCloseTo(0.3);
    expect(band!.value[0]).toBeCloseTo(0.2);
    expect(line).toMatchObject({ label: "rank 1", steps: [1] });
  });

  it("has the median between the two in the middle", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1])).toBe(2.5);
    expect(median([])).toBeNaN();
  });
});
