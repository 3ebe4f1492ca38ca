import { describe, expect, it } from "vitest";
import { MOST_LINES, shownRows } from "./rankLines";

const rows = (count: number) => Array.from({ length: count }, (_, row) => row);

describe("which rows of the heat map have a line", () => {
  it("gives a row that is clicked its line also where the choice has as many as there may be", () => {
    const shown = shownRows(rows(20), [19, 18], "all").rows;
    expect(shown.slice(0, 3)).toEqual([18, 19, 0]);
    expect(shown).toHaveLength(MOST_LINES);
  });

  it("shows the newest of more picked rows than there may be lines", () => {
    expect(shownRows([], rows(20), "slowest").rows).toEqual(rows(20).reverse().slice(0, MOST_LINES));
  });

  it("says of how many nodes some have no line", () => {
    expect(shownRows(rows(64), [], "nodes").leftOut).toBe(
      `${MOST_LINES} lines for 64 nodes: click on a row of the map to have its line`,
    );
    expect(shownRows(rows(17), [], "all").leftOut).toMatch(new RegExp(`^${MOST_LINES} lines for 17 ranks`));
    expect(shownRows(rows(MOST_LINES), [3], "nodes").leftOut).toBeNull();
  });
});
