import { describe, expect, it } from "vitest";
import { numberAdvice, numberOf, oversized, wholeNumberProblem } from "./numbers";

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

describe("what means no number here", () => {
  it.each([
    ["1k", "; write 1000"],
    ["2.5 M", "; write 2500000"],
    ["10%", "; write 0.1"],
    ["-0,1", "; write -0.1"],
    ["0,001", "; write 0.001"],
    ["1,000", "; write 1000"],
    ["12,345,678", "; write 12345678"],
    ["10;20", "; separate several numbers by commas"],
    ["0.9 0.95", "; separate several numbers by commas"],
    ["fast", ""],
    ["1e-8e", ""],
    ["16 gb", ""],
  ])("%s has its way out", (text, advice) => {
    expect(numberAdvice(text)).toBe(advice);
  });
});
