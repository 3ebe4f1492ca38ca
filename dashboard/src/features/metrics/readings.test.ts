import { describe, expect, it } from "vitest";
import { cardCurve, nodeMetrics } from "@/testing/fixtures/readings";
import {
  cardLines,
  metricsOf,
  nodeLines,
  readingData,
  readingSentence,
  readingTitle,
  readingWords,
  shownRange,
} from "./readings";

describe("names of readings", () => {
  it("are written as people write them, without their unit", () => {
    expect(["power_watts", "cpu_percent", "pcie_sent_bytes_per_second"].map(readingTitle)).toEqual([
      "Power",
      "CPU",
      "PCIe sent",
    ]);
    expect(["sm_clock_mhz", "temperature_celsius"].map(readingWords)).toEqual(["SM clock", "temperature"]);
  });
});

describe("readings of a node", () => {
  it("are one line for each card that was read", () => {
    const lines = nodeLines(nodeMetrics(), "power_watts");
    expect(lines.map(({ name }) => name)).toEqual(["Card 0", "Card 1"]);
    expect(metricsOf(nodeMetrics())).toEqual(["power_watts", "cpu_percent"]);
  });

  it("begin with the utilization of its cards, however the coordinator orders them", () => {
    const [host, card] = nodeMetrics().curves;
    const curves = [{ ...card!, name: "ecc_corrected" }, host!, { ...card!, name: "utilization_percent" }];
    expect(metricsOf(nodeMetrics({ curves }))).toEqual(["utilization_percent", "ecc_corrected", "cpu_percent"]);
  });

  it.each([
    { what: "a minute", bucket_seconds: 60, times: [0, 60, 180], gaps: [120] },
    { what: "some seconds", bucket_seconds: 1, times: [0, 1, 7], gaps: [2] },
    { what: "a moment, in which a reading came late", bucket_seconds: 1, times: [0, 1, 3], gaps: [] },
  ])("break where the node was away for $what", ({ bucket_seconds, times, gaps }) => {
    const [host] = nodeMetrics().curves;
    const curve = { ...host!, times, mean: times, minimum: times, maximum: times };
    const [x, maximum, , mean] = readingData(
      nodeLines(nodeMetrics({ bucket_seconds, curves: [curve] }), "cpu_percent"),
    );
    const drawn = [...times.slice(0, 2), ...gaps.map(() => null), times[2]];
    expect(x).toEqual([...times.slice(0, 2), ...gaps, times[2]]);
    expect([maximum, mean]).toEqual([drawn, drawn]);
  });

  it("are shown within two minutes where there is one time only", () => {
    const at = (...times: number[]) => [{ name: "Card 0", x: times, mean: times, minimum: times, maximum: times }];
    expect(shownRange(at(1_795_000_000), "time")).toEqual({ from: 1_794_999_940, to: 1_795_000_060 });
    expect(shownRange(at(1_795_000_000, 1_795_000_060), "time")).toBeNull();
    expect(shownRange(at(40), "step")).toBeNull();
  });

  it("tell the card with the most and the one with the least", () => {
    const sentence = readingSentence(nodeLines(nodeMetrics(), "power_watts"), "W", "time");
    expect(sentence).toMatch(/^620 W at \d\d:\d\d:\d\d \(Card 0\); least 75 W \(Card 1\)\.$/);
  });
});

describe("readings of a rank's card", () => {
  it("join its generations, and keep a gap where nothing was read", () => {
    const later = cardCurve({ generation: 2, steps: [3], times: [3], mean: [null], minimum: [null], maximum: [null] });
    const lines = cardLines([cardCurve(), later], "power_watts");
    expect(lines).toHaveLength(1);
    const [x, , , mean] = readingData(lines);
    expect(x).toEqual([1, 2, 3]);
    expect(mean).toEqual([300, 310, null]);
    expect(readingSentence(lines, "W", "step")).toBe("310 W at step 2.");
  });

  it("say so where there are none", () => {
    expect(readingSentence([], "W", "step")).toBe("Nothing was read in this range.");
  });
});
