import { DataTable, type Column } from "@/components/ui/DataTable";
import { count, measured, MISSING } from "@/lib/format";
import type { Line } from "../lines";

interface Row {
  step: number;
  values: readonly (number | undefined)[];
}

/** The values of several runs beside each other, a row for each step. */
export function RunTable({ lines }: { lines: readonly Line[] }) {
  const values = lines.map(({ steps, value }) => new Map(steps.map((step, at) => [step, value[at]!])));
  const steps = [...new Set(values.flatMap((line) => [...line.keys()]))].sort((a, b) => b - a);
  const columns: Column<Row>[] = [
    {
      id: "step",
      header: "Step",
      cell: ({ step }) => count(step),
      value: ({ step }) => step,
      numeric: true,
      width: 90,
    },
    ...lines.map(({ label }, index) => ({
      id: label,
      header: label,
      cell: (row: Row) => (row.values[index] === undefined ? MISSING : measured(row.values[index])),
      numeric: true,
    })),
  ];
  return (
    <DataTable
      label="Curves as a table"
      rows={steps.map((step) => ({ step, values: values.map((line) => line.get(step)) }))}
      columns={columns}
      rowId={({ step }) => String(step)}
    />
  );
}
