import { describe, expect, it } from "vitest";
import { groupMarks, kindOf, labelOf, type Mark, type Placed } from "./marks";

function at(left: number, label: string, kind: Mark["kind"] = "generation"): Placed {
  return { left, room: 100, mark: { step: left, label, kind, text: `${label}.` } };
}

describe("marks on a chart", () => {
  it("become one where they stand too close, whatever their order", () => {
    const groups = groupMarks([at(200, "G4"), at(10, "G2"), at(40, "G3")], 40);
    expect(groups.map(labelOf)).toEqual(["G2–G3", "G4"]);
  });

  it("never hide an incident behind a harmless generation", () => {
    expect(groupMarks([at(10, "G2"), at(20, "G3", "incident")], 40).map(kindOf)).toEqual(["incident"]);
    expect(groupMarks([at(10, "G2"), at(90, "G3", "incident")], 40).map(kindOf)).toEqual(["generation", "incident"]);
  });
});
