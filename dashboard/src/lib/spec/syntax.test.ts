import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { findMistake } from "./syntax";

interface Case {
  text: string;
  line: number;
  column: number;
  message: string;
}

/** The table that the coordinator's words are tested with too. */
const { mistakes, right } = JSON.parse(readFileSync("../tests/training/spec/yaml_mistakes.json", "utf8")) as {
  mistakes: Case[];
  right: string[];
};

describe("usual mistakes in YAML", () => {
  it.each(mistakes)("are told with their place and the way out: $text", ({ text, ...told }) => {
    expect(findMistake(text)).toEqual(told);
  });

  it.each(right)("are not found where there are none: %s", (text) => {
    expect(findMistake(text)).toBeNull();
  });

  it("are found in a moment in a long text", () => {
    const before = process.cpuUsage(); // of this process alone: others may have the machine
    for (const text of ["- ".repeat(30_000), "[".repeat(60_000), "a: 1\n".repeat(12_000), "[a\n".repeat(20_000)]) {
      findMistake(text);
    }
    expect(process.cpuUsage(before).user).toBeLessThan(2_000_000);
  });
});
