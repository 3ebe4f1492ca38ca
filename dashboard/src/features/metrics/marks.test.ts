import { describe, expect, it } from "vitest";
import { groupMarks, kindOf, labelOf, titleOf, type Mark, type Placed } from "./marks";

function at(left: number, generation: number, part: Partial<Mark> = {}): Placed {
  return {
    left,
    room: 100,
    mark: { step: left, generation, kind: "generation", text: `Generation ${generation}.`, ...part },
  };
}

describe("marks on a chart", () => {
  it("become one where they stand too close, whatever their order", () => {
    const groups = groupMarks([at(200, 4), at(10, 2), at(40, 3)], 40);
    expect(groups.map(labelOf)).toEqual(["Gen 2–3", "Gen 4"]);
    expect(groups.map(titleOf)).toEqual(["Generations 2–3", "Generation 4"]);
  });

  it("never hide an incident behind a harmless generation", () => {
    const lost = at(20, 3, { kind: "incident" });
    expect(groupMarks([at(10, 2), lost], 40).map(kindOf)).toEqual(["incident"]);
    expect(groupMarks([at(10, 2), lost], 40).map(titleOf)).toEqual(["Generations 2–3 (recovered)"]);
    expect(groupMarks([at(10, 2), { ...lost, left: 90 }], 40).map(kindOf)).toEqual(["generation", "incident"]);
  });

  it("tell the end of a job, alone and beside a generation", () => {
    const end = at(30, 3, { kind: "incident", ends: true });
    expect(groupMarks([end], 40).map((group) => [labelOf(group), titleOf(group)])).toEqual([["End", "End of the job"]]);
    expect(groupMarks([at(10, 3), end], 40).map((group) => [labelOf(group), titleOf(group)])).toEqual([
      ["Gen 3–end", "Generation 3 and the end of the job"],
    ]);
  });
});
