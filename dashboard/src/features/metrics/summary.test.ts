import { describe, expect, it } from "vitest";
import { madeLine, type Line } from "./lines";
import { extremeKey, summarize, unplacedExtremes } from "./summary";

/** Of a run whose newest bucket, from step 10 on, is not full yet. */
function line(newest: { step: number; minimum: number; value: number }): Line {
  const made = madeLine({ label: "lr", color: 0, unit: "" }, [9, newest.step], [8, newest.value]);
  const source = { jobId: "job1", name: "lr", rank: 0 };
  return { ...made, bucketSteps: 10, minimum: [8, newest.minimum], maximum: [9, 8], source };
}

const asked = (one: Line) =>
  unplacedExtremes([one], false).map((extreme) => ({ which: extreme.which, key: extremeKey(extreme) }));

describe("the extremes of a chart", () => {
  it("are at the newest step where that has the value, which nobody is asked about", () => {
    const falling = line({ step: 12, minimum: 3, value: 3 });
    expect(asked(falling).map(({ which }) => which)).toEqual(["maximum"]);
    expect(summarize([falling])).toBe("3 at step 12. Min 3 at step 12, max 9 in steps 0–9.");
  });

  it("are asked about once, however many steps their bucket gets", () => {
    const [before, after] = [12, 13].map((step) => line({ step, minimum: 2, value: 4 }));
    expect(asked(before!).map(({ which }) => which)).toEqual(["minimum", "maximum"]);
    expect(asked(after!)).toEqual(asked(before!));
    expect(summarize([after!])).toContain("Min 2 in steps 10–13");
  });
});
