import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState } from "@/components/ui/Panel";
import { count, measured } from "@/lib/format";
import type { Line } from "../lines";
import type { Mark } from "../marks";
import classes from "./Metrics.module.css";

interface Row {
  name: string;
  generation: number;
  step: number;
  minimum: number;
  maximum: number;
  value: number;
}

const COLUMNS: readonly Column<Row>[] = [
  { id: "step", header: "Step", cell: (row) => count(row.step), value: (row) => row.step, numeric: true, width: 90 },
  { id: "name", header: "Metric", cell: (row) => row.name, value: (row) => row.name },
  {
    id: "generation",
    header: "Generation",
    cell: (row) => row.generation,
    value: (row) => row.generation,
    numeric: true,
  },
  { id: "minimum", header: "Minimum", cell: (row) => measured(row.minimum), numeric: true },
  { id: "maximum", header: "Maximum", cell: (row) => measured(row.maximum), numeric: true },
  { id: "value", header: "Value", cell: (row) => measured(row.value), value: (row) => row.value, numeric: true },
];

const MARKS: readonly Column<Mark>[] = [
  {
    id: "step",
    header: "Step",
    cell: (mark) => count(mark.step),
    value: (mark) => mark.step,
    numeric: true,
    width: 90,
  },
  { id: "what", header: "What happened", prose: true, cell: (mark) => mark.text },
];

/** The same buckets as the chart, newest first, and the same marks. */
export function CurveTable({ title, lines, marks }: { title: string; lines: readonly Line[]; marks: readonly Mark[] }) {
  const rows = lines.flatMap((one) =>
    one.steps.map((step, i) => ({
      name: one.label,
      generation: one.generation,
      step,
      minimum: one.minimum[i]!,
      maximum: one.maximum[i]!,
      value: one.value[i]!,
    })),
  );
  if (rows.length === 0) return <EmptyState title="Nothing reported yet" />;
  rows.sort((a, b) => b.step - a.step);
  return (
    <>
      {marks.length > 0 && (
        <div className={classes.marks}>
          <DataTable
            label={`Marks on ${title}`}
            rows={marks}
            columns={MARKS}
            rowId={({ generation, ends }) => `${generation}/${ends ?? false}`}
          />
        </div>
      )}
      <DataTable
        label={`${title} values`}
        rows={rows}
        columns={COLUMNS}
        rowId={(row) => `${row.name}/${row.generation}/${row.step}`}
      />
    </>
  );
}
