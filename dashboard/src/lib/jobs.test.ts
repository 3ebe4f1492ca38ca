import { describe, expect, it } from "vitest";
import { generation, job, jobSummary } from "@/testing/fixtures";
import { canPause, mostRanks, percentDone, ranksToChoose, shareOfBar } from "./jobs";

describe("a progress bar", () => {
  const { progress } = jobSummary();
  it.each([
    ["running", 100, 25, 0.25],
    ["completed", 100, 100, 1],
    ["completed", null, 25, 1],
    ["running", null, 25, null],
    ["failed", null, 25, null],
  ] as const)("of a %s job of %s steps, %d of them done", (state, total_steps, step, expected) => {
    expect(shareOfBar({ state, progress: { ...progress, step, total_steps } })).toBe(expected);
  });
});

describe("the share done in words", () => {
  const { progress } = jobSummary();
  it.each([
    [250_000, 249_490, "99%"],
    [250_000, 250_000, "100%"],
    [100, 29, "29%"],
    [3, 1, "33%"],
    [null, 25, undefined],
  ] as const)("of %s steps, %d of them done, is rounded down", (total_steps, step, expected) => {
    expect(percentDone({ ...progress, step, total_steps })).toBe(expected);
  });
});

it("offers ranks that are gone since a job has shrunk, and a chosen one in any case", () => {
  const shrunk = job({ world_size: 2, generations: [generation({ world_size: 4 }), generation({ world_size: 2 })] });
  expect(ranksToChoose(mostRanks(shrunk), undefined)).toEqual([0, 1, 2, 3]);
  expect(ranksToChoose(mostRanks(shrunk), 3)).toEqual([0, 1, 2, 3]);
  expect(ranksToChoose(2, 9)).toEqual([0, 1, 9]);
  expect(mostRanks(job({ world_size: 8, generations: [] }))).toBe(8);
});

describe("pausing", () => {
  it.each([
    ["queued", null, true],
    ["running", null, true],
    ["stopping", "preempted", true],
    ["stopping", "resized", true],
    ["stopping", "completed", false],
    ["paused", null, false],
  ] as const)("a job that is %s (%s) can be paused: %s", (state, end_reason, expected) => {
    expect(canPause(jobSummary({ state, end_reason }))).toBe(expected);
  });
});
