import { describe, expect, it } from "vitest";
import { numberOf, oversized, wholeNumberProblem } from "./numbers";

describe("a typed number", () => {
  it.each([
    [".0003", 0.0003],
    ["3e-4", 0.0003],
    ["6.0E-4", 0.0006],
    ["1e4", 10_000],
    ["-2.", -2],
    [" 7 ", 7],
    ["+1", 1],
    ["1_000", 1000],
    ["1_000.5e-1_0", 1000.5e-10],
    ["3e\u22124", 0.0003],
    ["1e20", 1e20],
    ["9007199254740991", 9_007_199_254_740_991],
  ])("%s is %d", (text, number) => {
    expect(numberOf(text)).toBe(number);
  });

  it.each(["fast", "3e", "1,000", "0x10", "1e999", "1 2", "Infinity", "_1", "1__0", "1_", "9007199254740993"])(
    "%s stays what it is",
    (text) => {
      expect(numberOf(text)).toBe(text);
    },
  );

  it("is nothing where nothing is typed", () => {
    expect(numberOf("  ")).toBeUndefined();
  });
});

it("knows a number that is too large from a text that is none", () => {
  expect(oversized("99999999999999999999")).toBe(1e20);
  expect(oversized("-1e400")).toBe(-Infinity);
  for (const text of ["5", "1e20", "0x10", "٣", "true", ""]) expect(oversized(text)).toBeNull();
});

it("says which whole numbers are taken", () => {
  expect(wholeNumberProblem(2.5, 1)).toBe("Must be a whole number of at least 1");
  expect(wholeNumberProblem("abc", 1, 20)).toBe("Must be a whole number from 1 to 20");
  expect(wholeNumberProblem(21, 1, 20)).toBe("Must be a whole number from 1 to 20");
  expect(wholeNumberProblem(20, 1, 20)).toBeNull();
  expect(wholeNumberProblem(undefined, 1)).toBeNull();
});
