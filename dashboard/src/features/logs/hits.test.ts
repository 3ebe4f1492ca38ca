import { describe, expect, it } from "vitest";
import { hitsIn } from "./hits";

const marked = (text: string, q: string, regex = false) =>
  hitsIn(text, { q, regex }).map(([from, to]) => text.slice(from, to));

describe("hits of a search", () => {
  it("are found in any case, and a text is no expression", () => {
    expect(marked("Loss 0.5, loss 1x5", "loss")).toEqual(["Loss", "loss"]);
    expect(marked("0.5 0x5 (a+b)", "0.5")).toEqual(["0.5"]);
    expect(marked("0.5 0x5 (a+b)", "(a+b)")).toEqual(["(a+b)"]);
  });

  it("are those of an expression, where a browser reads it", () => {
    expect(marked("step 12 of 300", "\\d+", true)).toEqual(["12", "300"]);
    expect(marked("step 12", "^step|z*", true)).toEqual(["step"]);
    expect(marked("step 12", "(?i)step", true)).toEqual(marked("step 12", "[", true));
  });

  it("cost a moment at most, whatever is searched for", () => {
    const before = process.cpuUsage(); // of this process alone: others may have the machine
    expect(marked(`${"a".repeat(4000)}b`, "(a+)+$", true)).toEqual([]);
    expect(marked("a".repeat(4000), "a*a*a*b", true)).toEqual([]);
    expect(marked("a".repeat(400), "a*a*b", true)).toEqual([]);
    expect(process.cpuUsage(before).user).toBeLessThan(2_000_000);
  });

  it("are none without a search", () => {
    expect(hitsIn("a", undefined)).toEqual([]);
  });
});
