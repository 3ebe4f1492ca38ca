import { expect, it } from "vitest";
import { curve } from "@/testing/fixtures";
import { fromCurve } from "./curves";
import { lineSeries } from "./plot";

const PALETTE = { text: "#000000", line: "#000000", bad: "#000000", series: ["#4154c8"] };

it("outlines the extremes of a bucket, so that a spike of one step among thousands is seen", () => {
  const zoomedOut = fromCurve(curve({ bucket_steps: 500, minimum: [0, 0], maximum: [0, 10_000], last: [0, 0] }));
  const { series, bands } = lineSeries([zoomedOut], ["loss"], PALETTE, 0);
  const [[maximum, minimum]] = bands!.map((band) => band.series) as [[number, number]];
  for (const edge of [maximum, minimum].map((index) => series[index]!)) {
    expect(edge.width).toBeGreaterThan(0);
    expect(edge.stroke).toMatch(/^#4154c8b3$/);
  }
});
