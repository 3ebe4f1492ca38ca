import { render, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { DataTable, type Column } from "./DataTable";
import { meshColumns } from "./meshColumns";

interface Row {
  rank: number;
  place?: Record<string, number>;
}

const RANK: Column<Row> = { id: "rank", header: "Rank", cell: (row) => row.rank };

function show(rows: readonly Row[]) {
  render(
    <DataTable label="Ranks" rows={rows} columns={[RANK, ...meshColumns(rows)]} rowId={(row) => String(row.rank)} />,
  );
  return screen.getAllByRole("row").map((row) =>
    within(row)
      .getAllByRole(row === screen.getAllByRole("row")[0] ? "columnheader" : "cell")
      .map((cell) => cell.textContent),
  );
}

describe("the columns of a mesh", () => {
  it("tell where each rank stands along each axis; a parked one stands nowhere", () => {
    const rows: Row[] = [
      { rank: 0, place: { shard: 0, tensor: 0 } },
      { rank: 1, place: { shard: 0, tensor: 1 } },
      { rank: 2, place: {} },
    ];
    expect(show(rows)).toEqual([
      ["Rank", "Shard", "Tensor"],
      ["0", "0", "0"],
      ["1", "0", "1"],
      ["2", "–", "–"],
    ]);
  });

  it("are none where there are only replicas", () => {
    expect(
      show([
        { rank: 0, place: { replicate: 0 } },
        { rank: 1, place: { replicate: 1 } },
      ]),
    ).toEqual([["Rank"], ["0"], ["1"]]);
  });
});
