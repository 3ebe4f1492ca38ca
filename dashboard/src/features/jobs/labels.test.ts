import { expect, it } from "vitest";
import { specSchema } from "@/testing/specSchema";
import { labelPatch, labelProblem, labelsOf, pairsOf } from "./labels";

it("reads labels as people write them, with any sign in the value, and leaves out what is none", () => {
  expect(labelsOf(["team=nlp", "note=a=b, c", "plain"])).toEqual({ team: "nlp", note: "a=b, c" });
  expect(pairsOf({ team: "nlp", empty: "" })).toEqual(["team=nlp", "empty="]);
});

it("says what makes one set of labels of another", () => {
  expect(labelPatch({ a: "1", b: "2", c: "3" }, { a: "1", b: "9", d: "4" })).toEqual({ b: "9", d: "4", c: null });
});

it("says why a text is no label, by the rule of the spec", () => {
  expect(labelProblem("team/cv=a=b, c", specSchema)).toBeNull();
  expect(labelProblem("novalue", specSchema)).toBe(
    'Invalid label "novalue": write it as key=value, for example team=nlp',
  );
  for (const key of ["bad key!", "Team", "", "x".repeat(64)])
    expect(labelProblem(`${key}=x`, specSchema)).toBe(
      `Invalid name ${JSON.stringify(key)}: 1 to 63 lower-case letters, digits, '.', '_', '/' and '-'; first a letter or digit`,
    );
  expect(labelProblem(`team=${"x".repeat(254)}`, specSchema)).toContain("at most 253");
});
