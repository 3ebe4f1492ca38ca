import { beforeEach, expect, it } from "vitest";
import { learnServerTime, serverNow } from "./serverTime";

const NOW = Date.parse("2026-11-28T12:00:00Z");
const HOUR_MS = 3_600_000;

function answer(time: number, more: Record<string, string> = {}): Headers {
  return new Headers({ Date: new Date(time).toUTCString(), ...more });
}

function error(): number {
  return serverNow(NOW) - NOW;
}

beforeEach(() => learnServerTime(answer(NOW), NOW, NOW));

it.each([HOUR_MS, -HOUR_MS])("follows a coordinator whose clock is %i ms from the browser's, to two seconds", (off) => {
  learnServerTime(answer(NOW + off), NOW - 50, NOW + 50);
  expect(Math.abs(error() - off)).toBeLessThan(2_100);
  learnServerTime(answer(NOW), NOW, NOW); // the clock was set right
  expect(Math.abs(error())).toBeLessThanOrEqual(2_000);
});

it("stands still while answers agree with it, though their seconds are whole", () => {
  const before = error();
  for (const late of [0, 400, 999, 1_500]) learnServerTime(answer(NOW - late), NOW, NOW);
  expect(error()).toBe(before);
});

it("learns nothing from a slow answer, of which nobody knows when it was written", () => {
  const before = error();
  learnServerTime(answer(NOW - 30_000), NOW - 60_000, NOW);
  expect(error()).toBe(before);
});

it.each<Record<string, string>>([{ "Cache-Control": "private, max-age=31536000, immutable" }, { Age: "4000" }])(
  "learns nothing from an answer that a cache has kept: %o",
  (headers) => {
    const before = error();
    learnServerTime(answer(NOW - HOUR_MS, headers), NOW, NOW);
    learnServerTime(new Headers(), NOW, NOW);
    expect(error()).toBe(before);
  },
);
