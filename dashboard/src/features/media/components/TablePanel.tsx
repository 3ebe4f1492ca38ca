import { Button } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Panel } from "@/components/ui/Panel";
import { csvOfRows, download, fileName } from "@/lib/files";
import { count, MISSING } from "@/lib/format";
import type { LoggedTable } from "@/lib/types";
import classes from "./Media.module.css";
import type { KeyPanelProps } from "./MediaBoard";
import { ObjectColumns } from "./ObjectColumns";

type Cell = LoggedTable["rows"][number][number];

interface Row {
  id: number;
  cells: readonly Cell[];
}

const FIRST = 20;

/** The tables of a key, sortable by each column. */
export function TablePanel(props: KeyPanelProps) {
  return (
    <Panel title={props.shared.key} label={`${props.shared.key} table`} actions={props.fold} flush>
      <ObjectColumns {...props}>
        {({ table }, label) => table && <OneTable table={table} label={label} />}
      </ObjectColumns>
    </Panel>
  );
}

function OneTable({ table, label }: { table: LoggedTable; label: string }) {
  const rows = table.rows.map((cells, id) => ({ id, cells }));
  const save = () =>
    download(new Blob([csvOfRows([table.columns, ...table.rows])], { type: "text/csv" }), `${fileName(label)}.csv`);
  const left = table.total_rows - rows.length;
  return (
    <>
      <DataTable
        label={label}
        rows={rows}
        columns={table.columns.map((name, at) => columnOf(name, at, rows))}
        rowId={({ id }) => String(id)}
        first={FIRST}
      />
      <p className={classes.foot}>
        <Button size="compact-xs" variant="default" leftSection={<IconDownload size={13} />} onClick={save}>
          Download CSV
        </Button>
        {left > 0 && `The first ${count(rows.length)} of ${count(table.total_rows)} rows are stored.`}
      </p>
    </>
  );
}

function columnOf(name: string, at: number, rows: readonly Row[]): Column<Row> {
  const numeric = rows.length > 0 && rows.every(({ cells }) => cells[at] === null || numberOf(cells[at]!) !== null);
  return {
    id: String(at),
    header: name,
    cell: ({ cells }) => textOf(cells[at]!),
    value: ({ cells }) => (numeric ? numberOf(cells[at]!) : cells[at] === null ? null : String(cells[at])),
    numeric,
  };
}

/** NaN and the infinities travel by name. A number that is not one has no place in an order. */
function numberOf(cell: Cell): number | null {
  if (typeof cell === "number") return cell;
  return cell === "Infinity" ? Infinity : cell === "-Infinity" ? -Infinity : cell === "NaN" ? -Infinity : null;
}

function textOf(cell: Cell): string {
  if (cell === null) return MISSING;
  return typeof cell === "number" && !Number.isInteger(cell) ? String(Number(cell.toPrecision(7))) : String(cell);
}
