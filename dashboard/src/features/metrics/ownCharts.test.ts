import { expect, it } from "vitest";
import { PLAIN } from "./lines";
import { drawnBy, movedBy, NEW_CHART, parseCharts, specOf, toldApart } from "./ownCharts";

it("drops what is no chart from what was stored", () => {
  const chart = { id: "1", title: "Quality", names: ["loss", "recall"] };
  expect(parseCharts(JSON.stringify([chart, { id: "2", title: "Empty", names: [] }, null, { id: 3 }]))).toEqual([
    chart,
  ]);
  for (const stored of ["{", "7", "null", undefined]) expect(parseCharts(stored)).toEqual([]);
});

it("gives each metric its unit", () => {
  expect(specOf({ ...NEW_CHART, id: "1", title: "Quality", names: ["loss", "mfu", "recall"] }, "nats").units).toEqual({
    loss: "nats",
    mfu: "share",
    recall: "",
  });
});

it("is drawn by its own axis and scale where the run allows the axis", () => {
  const chart = { ...NEW_CHART, axis: "tokens", scale: "log" } as const;
  expect(drawnBy(chart, PLAIN, ["step", "tokens"])).toEqual({ ...PLAIN, axis: "tokens", log: true });
  expect(drawnBy(chart, PLAIN, ["step"])).toEqual({ ...PLAIN, log: true });
  expect(drawnBy({ ...NEW_CHART, scale: "linear" }, { ...PLAIN, log: true }, ["step"]).log).toBe(false);
  expect(drawnBy(NEW_CHART, { ...PLAIN, log: true }, ["step"]).log).toBe(true);
});

it("moves a chart among the others, not over the ends", () => {
  const moved = (ids: string[], id: string, places: 1 | -1) => movedBy(ids, ids, id, places);
  expect(moved(["a", "b", "c"], "c", -1)).toEqual(["a", "c", "b"]);
  expect(moved(["a", "b", "c"], "a", 1)).toEqual(["b", "a", "c"]);
  expect(moved(["a", "b"], "a", -1)).toEqual(["a", "b"]);
  expect(moved(["a", "b"], "b", 1)).toEqual(["a", "b"]);
  expect(moved(["a", "b"], "gone", 1)).toEqual(["a", "b"]);
});

it("moves a chart past the next one that is shown, over those of other jobs between them", () => {
  expect(movedBy(["a", "other", "b"], ["a", "b"], "a", 1)).toEqual(["other", "b", "a"]);
  expect(movedBy(["a", "other", "b"], ["a", "b"], "b", -1)).toEqual(["b", "a", "other"]);
});

it("tells charts of one title apart, and from the other charts of the page", () => {
  const titles = (given: string[], taken: string[] = []) =>
    toldApart(
      given.map((title) => ({ ...NEW_CHART, title })),
      taken,
    ).map(({ title }) => title);
  expect(titles(["Loss", "Loss", "Quality", "Loss"])).toEqual(["Loss", "Loss (2)", "Quality", "Loss (3)"]);
  expect(titles(["Loss", "Loss (2)", "Loss"], ["Loss"])).toEqual(["Loss (2)", "Loss (2) (2)", "Loss (3)"]);
});
