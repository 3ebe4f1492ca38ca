import { describe, expect, it } from "vitest";
import { originOf, sectionOf } from "./code";

describe("where code came from", () => {
  it.each([
    [{ commit: null, branch: null }, null],
    [{ commit: "0123456789abcdef", branch: null }, "commit 0123456789ab"],
    [{ commit: "0123456789abcdef", branch: "main" }, "commit 0123456789ab of main"],
    [{ commit: 12345678, branch: "main" }, null],
    [{ commit: "abc", branch: 1, uncommitted: "a.py" }, "commit abc"],
    [{ commit: "abc", branch: "main", uncommitted: ["a.py"] }, "commit abc of main, 1 file differed"],
  ])("%j", (code, told) => expect(originOf(code)).toBe(told));

  it("is written into a document without what is not known", () => {
    const bundle = "ab".repeat(32);
    const code = { bundle, folder: "mine", commit: null, branch: null, uncommitted: [] };
    expect(sectionOf(code)).toEqual({ bundle, folder: "mine" });
  });
});
