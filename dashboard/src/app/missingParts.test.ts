import { afterEach, expect, it, vi } from "vitest";
import { isMissingPart, reloadOnMissingPart } from "./missingParts";

const fail = () => {
  const payload = new Error("Unable to preload CSS for /assets/SpecForm.css");
  window.dispatchEvent(Object.assign(new Event("vite:preloadError", { cancelable: true }), { payload }));
  return payload;
};

let stop: () => void;
afterEach(() => {
  stop();
});

it("loads the page anew, and shows what stays missing", () => {
  const reload = vi.fn();
  let now = 1_800_000_000_000;
  stop = reloadOnMissingPart(reload, sessionStorage, () => now);
  expect(isMissingPart(fail())).toBe(true);
  expect(reload).toHaveBeenCalledTimes(1);
  now += 29_000;
  expect(isMissingPart(fail())).toBe(true);
  expect(reload).toHaveBeenCalledTimes(1);
  now += 2_000;
  fail();
  expect(reload).toHaveBeenCalledTimes(2);
});

it("takes no other error for one of these", () => {
  stop = reloadOnMissingPart(vi.fn());
  expect(isMissingPart(new Error("Unable to preload CSS"))).toBe(false);
  expect(isMissingPart("text")).toBe(false);
});
