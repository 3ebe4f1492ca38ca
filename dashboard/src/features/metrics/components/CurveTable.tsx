import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState } from "@/components/ui/Panel";
import { count, measured } from "@/lib/format";
import type { Series } from "../curves";

interface Row {
  name: string;
  generation: number;
  step: number;
  minimum: number;
  maximum: number;
  last: number;
}

const COLUMNS: readonly Column<Row>[] = [
  { id: "step", header: "Step", cell: (row) => count(row.step), value: (row) => row.step, numeric: true, width: 90 },
  { id: "name", header: "Metric", cell: (row) => row.name, value: (row) => row.name },
  { id: "generation", header: "Generation", cell: (row) => row.generation, value: (row) => row.generation, numeric: true },
  { id: "minimum", header: "Minimum", cell: (row) => measured(row.minimum), numeric: true },
  { id: "maximum", header: "Maximum", cell: (row) => measured(row.maximum), numeric: true },
  { id: "last", header: "Last", cell: (row) => measured(row.last), value: (row) => row.last, numeric: true },
];

/** The same buckets as the chart, newest first. */
export function CurveTable({ title, series }: { title: string; series: readonly Series[] }) {
  const rows = series.flatMap((one) => one.steps.map((step, i) => ({
    name: one.name, generation: one.generation, step, minimum: one.minimum[i]!, maximum: one.maximum[i]!, last: one.last[i]!,
  })));
  if (rows.length === 0) return <EmptyState title="Nothing reported yet" />;
  rows.sort((a, b) => b.step - a.step);
  return <DataTable label={`${title} values`} rows={rows} columns={COLUMNS} rowId={(row) => `${row.name}/${row.generation}/${row.step}`} />;
}
