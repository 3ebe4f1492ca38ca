import { describe, expect, it } from "vitest";
import { linesOf, mapOf, mapProblem } from "./maps";

const asText = (text: string) => text;
const asJson = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};

describe("the lines of a map", () => {
  it("are read as the values that they were written of", () => {
    const texts = {
      PEM: "line1\nQUJD=\n",
      SEP: " ",
      QUOTED: '"a"',
      EMPTY: "",
      PLAIN: 'say "a"',
      BRACE: '{"a": 1}',
    };
    expect(mapProblem(linesOf(texts, asText))).toBeNull();
    expect(mapOf(linesOf(texts, asText), asText)).toEqual(texts);
    const values = { rope: "true", rev: "007", sha: "1e5", on: true, width: 192, ids: [1, "2"], ...texts };
    expect(mapOf(linesOf(values, asJson), asJson)).toEqual(values);
  });

  it("have quotes only where the value needs them", () => {
    expect(linesOf({ A: "1", REV: "007", SEP: " " }, asText)).toBe('A=1\nREV=007\nSEP=" "');
    expect(linesOf({ A: "1", REV: "007" }, asJson)).toBe('A="1"\nREV=007');
  });
});
