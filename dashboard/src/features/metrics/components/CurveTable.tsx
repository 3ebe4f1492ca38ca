import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState } from "@/components/ui/Panel";
import { count, measured } from "@/lib/format";
import type { Series } from "../curves";
import type { Mark } from "../marks";
import classes from "./Metrics.module.css";

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
  {
    id: "generation",
    header: "Generation",
    cell: (row) => row.generation,
    value: (row) => row.generation,
    numeric: true,
  },
  { id: "minimum", header: "Minimum", cell: (row) => measured(row.minimum), numeric: true },
  { id: "maximum", header: "Maximum", cell: (row) => measured(row.maximum), numeric: true },
  { id: "last", header: "Last", cell: (row) => measured(row.last), value: (row) => row.last, numeric: true },
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
export function CurveTable({
  title,
  series,
  marks,
}: {
  title: string;
  series: readonly Series[];
  marks: readonly Mark[];
}) {
  const rows = series.flatMap((one) =>
    one.steps.map((step, i) => ({
      name: one.name,
      generation: one.generation,
      step,
      minimum: one.minimum[i]!,
      maximum: one.maximum[i]!,
      last: one.last[i]!,
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
            rowId={(mark) => mark.label + mark.step}
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
