import { useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { TableToggle } from "@/components/ui/TableToggle";
import { count, measured, percent } from "@/lib/format";
import type { ParameterGradients } from "@/lib/types";
import { binLabel } from "../gradients";
import { Histogram } from "./Histogram";
import classes from "./Gradients.module.css";

type RankGradient = ParameterGradients["ranks"][number];

const BY_RANK: readonly Column<RankGradient>[] = [
  { id: "rank", header: "Rank", cell: ({ rank }) => rank, value: ({ rank }) => rank, width: 70 },
  { id: "shape", header: "Shape", cell: ({ shape }) => shape.join(" × ") || "scalar" },
  {
    id: "norm",
    header: "Norm",
    cell: ({ norm }) => measured(norm),
    value: ({ norm }) => norm ?? Infinity,
    numeric: true,
  },
  {
    id: "zeros",
    header: "Zeros",
    cell: ({ zeros, elements }) => percent(elements ? zeros / elements : 0, 1),
    value: ({ zeros, elements }) => zeros / Math.max(1, elements),
    numeric: true,
  },
  { id: "nans", header: "NaN", cell: ({ nans }) => count(nans), value: ({ nans }) => nans, numeric: true },
  { id: "infs", header: "Infinite", cell: ({ infs }) => count(infs), value: ({ infs }) => infs, numeric: true },
];

interface Bin {
  bin: number;
  range: string;
  elements: number;
}

const BY_BIN: readonly Column<Bin>[] = [
  { id: "range", header: "Size", cell: ({ range }) => range, value: ({ bin }) => bin },
  {
    id: "elements",
    header: "Elements",
    cell: ({ elements }) => count(elements),
    value: ({ elements }) => elements,
    numeric: true,
  },
];

interface Props {
  parameter: ParameterGradients;
  edges: readonly number[];
  bins: readonly [number, number];
}

/** One parameter: its histogram over all ranks, or the table of it, and each rank's numbers. */
export function ParameterDetails({ parameter, edges, bins }: Props) {
  const [asTable, setAsTable] = useState(false);
  const { name, histogram, ranks } = parameter;
  const filled = histogram.flatMap((elements, bin) =>
    elements > 0 ? [{ bin, range: binLabel(edges, bin), elements }] : [],
  );
  return (
    <section className={classes.details} aria-label={`Gradient of ${name}`}>
      <header className={classes.detailsHeader}>
        <h3 className={classes.name}>{name}</h3>
        <TableToggle pressed={asTable} onChange={setAsTable} what={`Histogram of ${name}`} />
      </header>
      {asTable ? (
        <DataTable label={`Elements of ${name} by size`} rows={filled} columns={BY_BIN} rowId={({ bin }) => `${bin}`} />
      ) : (
        <Histogram {...{ name, histogram, edges, bins }} large />
      )}
      <DataTable
        label={`Gradient of ${name} by rank`}
        rows={ranks}
        columns={BY_RANK}
        rowId={({ rank }) => `${rank}`}
        first={8}
      />
    </section>
  );
}
