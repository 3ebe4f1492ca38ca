import { describe, expect, it } from "vitest";
import { withoutUnit, withUnit } from "./units";

describe("units", () => {
  it("writes large rates with the prefix that their axis has", () => {
    expect(withUnit(2_984_120, "tokens/s")).toBe("2.98M tokens/s");
    expect(withoutUnit(12_345_678, "samples/s")).toBe("12.35M");
  });

  it("writes all digits of smaller rates, and no prefix where there is no rate", () => {
    expect(withUnit(205_130, "tokens/s")).toBe("205,130 tokens/s");
    expect(withUnit(2_984_120, "nats")).toBe("2.98e6 nats");
  });
});
