import { expect, it } from "vitest";
import { event } from "@/testing/fixtures";
import { newestFirst } from "./order";

it("shows no time above a later one, though a decision is recorded after what happened while it was made", () => {
  const at = (seq: number, second: string) => event({ seq, time: `2026-11-24T06:25:${second}Z` });
  const shown = newestFirst([at(1, "11.2"), at(2, "12.1"), at(3, "11.9"), at(4, "12.7")]).map(({ seq, time }) => [
    seq,
    time.slice(17, -1),
  ]);
  expect(shown).toEqual([
    [4, "12.7"],
    [3, "12.1"],
    [2, "12.1"],
    [1, "11.2"],
  ]);
});

it("goes by the number of a record, whatever order it came in", () => {
  expect(newestFirst([event({ seq: 3 }), event({ seq: 11 }), event({ seq: 2 })]).map(({ seq }) => seq)).toEqual([
    11, 3, 2,
  ]);
});
