import { describe, expect, it } from "vitest";
import { logSplits } from "./ticks";

describe("the lines of a logarithmic axis", () => {
  it("are few, however many decades there are", () => {
    const wide = logSplits(1e-16, 1e4);
    expect(wide).toEqual([1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1, 1000]);
    for (let power = -300; power < 300; power += 7) {
      const lines = logSplits(10 ** -300, 10 ** power);
      expect(lines.length).toBeLessThanOrEqual(9);
    }
  });

  it("divide a decade where there are few", () => {
    expect(logSplits(1, 100)).toEqual([1, 2, 5, 10, 20, 50, 100]);
    expect(logSplits(1, 10)).toEqual([1, 2, 5, 10]);
  });

  it("are still several within a decade", () => {
    expect(logSplits(2.1, 2.9)).toEqual([2.2, 2.4, 2.6, 2.8]);
  });

  it("are none where there is nothing positive", () => {
    expect(logSplits(0, 10)).toEqual([]);
    expect(logSplits(1, 1)).toEqual([]);
  });
});
