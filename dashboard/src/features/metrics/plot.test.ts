import type uPlot from "uplot";
import { describe, expect, it } from "vitest";
import { curve } from "@/testing/fixtures";
import { fromCurve } from "./curves";
import { lineOf, PLAIN, type Line } from "./lines";
import { baseOptions, extremeBars, lineData, lineSeries, unitsOf } from "./plot";

const PALETTE = { text: "#000000", line: "#000000", bad: "#000000", mean: "#000000", series: ["#4154c8", "#c2610c"] };
const place = ({ steps }: { steps: number[] }) => steps;

const BUCKETS = 50;
const spiky = fromCurve(
  curve({
    bucket_steps: 1000,
    steps: Array.from({ length: BUCKETS }, (_, at) => 1000 * at + 999),
    minimum: new Array<number>(BUCKETS).fill(0),
    maximum: Array.from({ length: BUCKETS }, (_, at) => (at === 20 ? 10_000 : 1)),
    last: new Array<number>(BUCKETS).fill(0),
  }),
);
const line: Line = lineOf(spiky, { label: "loss", color: 0, unit: "nats", place });

/** A plot of 200 pixels for values from 0 to 10,000. */
const plot = {
  bbox: { left: 0, top: 0, width: 500, height: 200 },
  valToPos: (value: number, scale: string) => (scale === "x" ? value / 100 : 200 - value / 50),
} as unknown as uPlot;

describe("a bucket of many steps", () => {
  it("is outlined, and its spike is drawn at full colour on whole pixels, smoothed or not", () => {
    const { series, bands } = lineSeries([line], PALETTE, PLAIN);
    const [[maximum, minimum]] = bands!.map((band) => band.series) as [[number, number]];
    for (const edge of [maximum, minimum].map((index) => series[index]!)) {
      expect(edge.width).toBeGreaterThan(0);
      expect(edge.stroke).toMatch(/^#4154c8b3$/);
    }
    expect(extremeBars(plot, [line], PALETTE)).toEqual([{ x: 209, y: 0, width: 2, height: 200, color: "#4154c8" }]);
  });
});

describe("lines of two units", () => {
  const norm = { ...line, label: "gradient_norm", color: 1, unit: "" as const };

  it("have an axis each", () => {
    expect(unitsOf([line, norm])).toEqual(["nats", ""]);
    const { series } = lineSeries([line, norm], PALETTE, PLAIN);
    expect(series.slice(1).map(({ scale }) => scale)).toEqual(["y", "y", "y", "right", "right", "right"]);
  });

  it("have a smoothed column each, and no other than their values where nothing is smoothed", () => {
    expect(lineData([line, norm], PLAIN)).toHaveLength(1 + 2 * 3);
    expect(lineData([line, norm], { ...PLAIN, smoothing: { kind: "mean", amount: 2 } })).toHaveLength(1 + 2 * 4);
  });
});

describe("the x axis of a single value", () => {
  it("is close around it", () => {
    const { range } = baseOptions(PALETTE, { log: false, units: [""] }).scales!.x!;
    const shown = (range as uPlot.Range.Function)({ data: [[40], [1]] } as unknown as uPlot, 36, 44, "x"); // as uPlot widens it
    expect(shown).toEqual([39, 41]);
  });
});
