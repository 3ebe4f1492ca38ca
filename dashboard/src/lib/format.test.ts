import { describe, expect, it } from "vitest";
import {
  bytes,
  byteTicks,
  duration,
  measured,
  MISSING,
  sentence,
  si,
  siWithUnit,
  tickLabels,
  timeTicks,
} from "./format";
import { lossOfStopping } from "./jobs";
import { jobSummary } from "@/testing/fixtures";

describe("formats", () => {
  it("writes magnitudes with SI prefixes and sizes with binary ones", () => {
    expect([12, 999, 1000, 12_400, 3_100_000].map((n) => si(n))).toEqual(["12", "999", "1.0k", "12.4k", "3.1M"]);
    expect([0, 1023, 1024, 5 * 1024 ** 3].map(bytes)).toEqual(["0 B", "1023 B", "1.0 KiB", "5.0 GiB"]);
  });

  it("writes an axis in one notation, with labels that differ", () => {
    expect(tickLabels([0, 0.0005, 0.001])).toEqual(["0", "5e-4", "1e-3"]);
    expect(tickLabels([0.00029994, 0.00029996, 0.00029998])).toEqual(["2.9994e-4", "2.9996e-4", "2.9998e-4"]);
    expect(tickLabels([277_100_000, 277_150_000])).toEqual(["277.1M", "277.15M"]);
    expect(tickLabels([1, null, 10, 100, 1000])).toEqual(["1", "", "10", "100", "1k"]);
  });

  it("writes an axis of sizes with one binary prefix", () => {
    expect(byteTicks([0, 512 * 1024 ** 2, null, 1024 ** 3])).toEqual(["0 GiB", "0.5 GiB", "", "1 GiB"]);
    expect(byteTicks([352 * 1024 ** 2, 360 * 1024 ** 2])).toEqual(["352 MiB", "360 MiB"]);
  });

  it("writes an axis of times with one unit", () => {
    expect(timeTicks([0, 0.2, null, 0.6])).toEqual(["0 ms", "200 ms", "", "600 ms"]);
    expect(timeTicks([0, 2.5, 5])).toEqual(["0 s", "2.5 s", "5 s"]);
  });

  it("begins a sentence with a capital, but for a name from the spec", () => {
    expect([
      sentence("rank 1 fell"),
      sentence("checkpoint.directory is not set"),
      sentence("tensor=3 does not divide"),
      sentence("micro_batch_size is 3"),
    ]).toEqual(["Rank 1 fell", "checkpoint.directory is not set", "tensor=3 does not divide", "micro_batch_size is 3"]);
  });

  it("writes measured values without losing small ones", () => {
    expect([0, 2.38112, 0.00005, 123_456].map(measured)).toEqual(["0", "2.381", "5e-5", "123,456"]);
    expect(measured("NaN")).toBe("NaN");
  });

  it("shows what is missing as missing, never as zero", () => {
    expect([620, 1240, 3_100_000].map((n) => siWithUnit(n, "W"))).toEqual(["620 W", "1.2 kW", "3.1 MW"]);
    expect([si(null), bytes(null), measured(null), duration(null)]).toEqual([MISSING, MISSING, MISSING, MISSING]);
  });

  it("writes lengths of time by their size", () => {
    expect([0.44, 42, 185, 7800, 273_600].map(duration)).toEqual([
      "0.4 s",
      "42 s",
      "3 min 05 s",
      "2 h 10 min",
      "3 d 4 h",
    ]);
  });
});

describe("what stopping would lose", () => {
  it("names the steps since the last checkpoint", () => {
    const { progress } = jobSummary();
    expect(lossOfStopping({ strategy: "ddp", progress })).toBe(
      "34 steps since the last checkpoint (step 100) will be lost.",
    );
    expect(lossOfStopping({ strategy: "ddp", progress: { ...progress, last_checkpoint_step: null } })).toContain(
      "All 134 steps will be lost",
    );
    expect(lossOfStopping({ strategy: "ddp", progress: { ...progress, last_checkpoint_step: 134 } })).toContain(
      "Nothing will be lost",
    );
  });
});
