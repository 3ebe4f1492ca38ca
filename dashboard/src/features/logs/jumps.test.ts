import { describe, expect, it } from "vitest";
import { placeOf } from "./jumps";

const NEWEST = new Date(2026, 10, 25, 14, 30);
const at = (...parts: [number, number, number, number, number, number?]) => ({
  since: new Date(...parts).toISOString(),
});

describe("a place in a log", () => {
  it.each([
    ["1", { line: 1 }],
    [" 12,345 ", { line: 12_345 }],
    ["999500", { line: 999_500 }],
    ["14:05", at(2026, 10, 25, 14, 5)],
    ["14:05:30", at(2026, 10, 25, 14, 5, 30)],
    ["23:59", at(2026, 10, 24, 23, 59)],
    ["2026-11-20", at(2026, 10, 20, 0, 0)],
    ["2026-11-20 08:15", at(2026, 10, 20, 8, 15)],
    ["2026-11-20T08:15:00Z", { since: "2026-11-20T08:15:00.000Z" }],
  ])("%j is understood", (text, place) => {
    expect(placeOf(text, NEWEST)).toEqual(place);
  });

  it.each(["", "0", "soon", "24:00", "14:60", "-1", "2026-13-01", "1,2"])("%j is none", (text) => {
    expect(placeOf(text, NEWEST)).toBeNull();
  });
});
