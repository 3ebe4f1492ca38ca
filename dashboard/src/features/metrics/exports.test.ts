import type uPlot from "uplot";
import { describe, expect, it } from "vitest";
import { curve } from "@/testing/fixtures";
import { fromCurve } from "./curves";
import { fileName } from "@/lib/files";
import { csvOf, svgOf } from "./exports";
import { lineOf } from "./lines";

const line = lineOf(fromCurve(curve({ last: [5, "NaN"] })), {
  label: 'recall, "macro"',
  color: 0,
  unit: "",
  place: ({ steps }) => steps,
});

/** What uPlot holds of a chart of 100 by 50 pixels: one filled band, one line with a gap, and a tick on each axis. */
const plot = {
  width: 100,
  height: 50,
  bbox: { left: 0, top: 0, width: 100, height: 40 },
  valToPos: (value: number) => value,
  axes: [
    { scale: "x", _splits: [10], _values: ["10"] },
    { scale: "y", _splits: [20], _values: ["20 <s>"] },
  ],
  data: [
    [1, 2, 3, 4],
    [5, 5, 5, 5],
    [1, 1, 1, 1],
    [7, undefined, null, 9],
  ],
  series: [
    {},
    { stroke: () => "#111111", width: 1, points: { show: false } },
    { stroke: () => "#111111", width: 1, points: { show: false } },
    { stroke: () => "#222222", width: 2, points: { show: true } },
  ],
  bands: [{ series: [1, 2], fill: () => "#33333355" }],
} as unknown as uPlot;

describe("a chart as CSV", () => {
  it("has a row for each bucket, and quotes what has to be", () => {
    expect(csvOf([line])).toBe(
      [
        "step,name,generation,bucket_steps,x,value,minimum,maximum",
        '1,"recall, ""macro""",1,1,1,5,5,5',
        '2,"recall, ""macro""",1,1,2,NaN,NaN,NaN',
        "",
      ].join("\r\n"),
    );
  });
});

describe("a chart as SVG", () => {
  const svg = svgOf(plot, [{ x: 50, y: 0, width: 2, height: 40, color: "#444444" }], {
    title: "Loss & more",
    sentence: "5 at step 1.",
    legend: [{ label: "loss", color: "#222222" }],
    background: "#ffffff",
    text: "#000000",
  });
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml");

  it("is well formed, with its title, sentence, legend and ticks as text", () => {
    expect(parsed.querySelector("parsererror")).toBeNull();
    expect([...parsed.querySelectorAll("text")].map((text) => text.textContent)).toEqual([
      "Loss & more",
      "loss",
      "10",
      "20 <s>",
      "5 at step 1.",
    ]);
  });

  it("draws a line without what belongs to another series, broken where there is a gap", () => {
    const paths = [...parsed.querySelectorAll("path")].map((path) => path.getAttribute("d"));
    expect(paths).toEqual(["M1 5L2 5L3 5L4 5L4 1L3 1L2 1L1 1Z", "M1 5L2 5L3 5L4 5", "M1 1L2 1L3 1L4 1", "M1 7M4 9"]);
    expect(parsed.querySelectorAll("circle")).toHaveLength(2);
  });

  it("has the extremes above the lines", () => {
    expect(parsed.querySelector('rect[fill="#444444"]')?.getAttribute("height")).toBe("40");
  });
});

it("names a file after its chart", () => {
  expect(["Gradient norm", "loss/train", "损失"].map(fileName)).toEqual(["gradient-norm", "loss-train", "chart"]);
});
