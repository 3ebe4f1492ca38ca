import { expect, it } from "vitest";
import { labels } from "./searchValues";

it("filters by one label of each key, the one that was chosen last", () => {
  expect(labels(["team=nlp", "tier=a", "team=cv"])).toEqual(["team=cv", "tier=a"]);
  expect(labels("note=a, b,team=nlp,team=cv")).toEqual(["note=a, b", "team=cv"]);
  expect(labels("none")).toBeUndefined();
});
