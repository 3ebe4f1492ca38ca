import { MISSING } from "@/lib/format";
import type { Column } from "./DataTable";

interface Placed {
  place?: Record<string, number>;
}

/** A column for each axis of the mesh that the rows' ranks stand in. Replicas alone need none: their number is the rank. */
export function meshColumns<Row extends Placed>(rows: readonly Row[]): Column<Row>[] {
  const axes = [...new Set(rows.flatMap(({ place = {} }) => Object.keys(place)))];
  return axes.length === 1 && axes[0] === "replicate" ? [] : axes.map((axis) => placeColumn(axis));
}

function placeColumn<Row extends Placed>(axis: string): Column<Row> {
  return {
    id: `axis-${axis}`,
    header: axis[0]!.toUpperCase() + axis.slice(1),
    numeric: true,
    cell: ({ place }) => place?.[axis] ?? MISSING,
    value: ({ place }) => place?.[axis] ?? Infinity,
  };
}
