/** The one table: headless columns from TanStack Table, our markup; over 200 rows it draws only what is in view. */
import { Button } from "@mantine/core";
import {
  createSortedRowModel,
  rowSortingFeature,
  sortFns,
  tableFeatures,
  useTable,
  type ColumnDef,
} from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMergedRef } from "@mantine/hooks";
import { useRef, useState, type ReactNode } from "react";
import classes from "./DataTable.module.css";
import { useSideways } from "./useSideways";

const features = tableFeatures({ rowSortingFeature, sortedRowModel: createSortedRowModel(), sortFns });
const VIRTUAL_FROM = 200;
const ROW_HEIGHT = 36;

export interface Column<Row> {
  id: string;
  header: string;
  cell(row: Row): ReactNode;
  /** Sortable by this value; rows without one come last, whichever way. */
  value?(row: Row): string | number | null | undefined;
  /** Which way the first click sorts; left out: texts up, numbers down. */
  sortFirst?: "up" | "down";
  numeric?: boolean;
  /** Stays in view while the others scroll sideways: only of the first column. */
  sticky?: boolean;
  /** Whole sentences, or lists: they wrap; everything else stays on its line. */
  prose?: boolean;
  width?: number;
}

interface Props<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  rowId(row: Row): string;
  /** Show this many rows until all are asked for. */
  first?: number;
  /** On a phone each row is a block of its values, each beside the name of its column, in place of a table that is wider than the screen. */
  stacks?: boolean;
  rowProps?(row: Row): { "data-selected"?: boolean; "data-muted"?: boolean };
}

export function DataTable<Row extends object>({ label, rows, columns, rowId, first, stacks, rowProps }: Props<Row>) {
  const [whole, setWhole] = useState(false);
  const table = useTable({ features, data: rows as Row[], columns: toDefinitions(columns), getRowId: rowId });
  const scroller = useRef<HTMLDivElement>(null);
  const scrolled = useMergedRef(scroller, useSideways());
  const all = table.getRowModel().rows;
  const sorted = whole ? all : all.slice(0, first);
  const virtual = useVirtualizer({
    count: sorted.length,
    enabled: sorted.length > VIRTUAL_FROM,
    estimateSize: () => ROW_HEIGHT,
    getScrollElement: () => scroller.current,
    overscan: 20,
  });
  const window = sorted.length > VIRTUAL_FROM ? virtual.getVirtualItems() : null;
  const shown = window ? window.map((item) => sorted[item.index]!) : sorted;
  const above = window?.[0]?.start ?? 0;
  const below = window ? virtual.getTotalSize() - (window.at(-1)?.end ?? 0) : 0;
  return (
    <>
      <div
        ref={scrolled}
        className={`${classes.scroller} sideways`}
        data-tall={window !== null || undefined}
        role="region"
        aria-label={`${label}, scrollable`}
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
        tabIndex={0}
      >
        <table
          className={classes.table}
          data-stacks={stacks || undefined}
          aria-label={label}
          aria-rowcount={all.length + 1}
        >
          <thead>
            <tr>
              {table.getHeaderGroups()[0]!.headers.map((header, index) => (
                <HeaderCell
                  key={header.id}
                  column={columns[index]!}
                  sorted={header.column.getIsSorted()}
                  onSort={header.column.getToggleSortingHandler()}
                />
              ))}
            </tr>
          </thead>
          <tbody>
            {above > 0 && <tr style={{ height: above }} />}
            {shown.map((row) => (
              <tr key={row.id} {...flags(rowProps?.(row.original))}>
                {columns.map((column) => (
                  <td
                    key={column.id}
                    data-column={column.header || undefined}
                    data-numeric={column.numeric || undefined}
                    data-prose={column.prose || undefined}
                    data-sticky={column.sticky || undefined}
                  >
                    {column.cell(row.original)}
                  </td>
                ))}
              </tr>
            ))}
            {below > 0 && <tr style={{ height: below }} />}
          </tbody>
        </table>
      </div>
      {first !== undefined && all.length > first && (
        <Button className={classes.more} variant="subtle" size="compact-xs" onClick={() => setWhole(!whole)}>
          {whole ? `Show the first ${first}` : `Show all ${all.length}`}
        </Button>
      )}
    </>
  );
}

/** An attribute that is false must be absent: CSS sees that it is there, not what it says. */
function flags(props: Record<string, boolean | undefined> = {}) {
  return Object.fromEntries(Object.entries(props).map(([name, on]) => [name, on || undefined]));
}

function toDefinitions<Row extends object>(
  columns: readonly Column<Row>[],
): ColumnDef<typeof features, Row, unknown>[] {
  return columns.map((column) => ({
    id: column.id,
    header: column.header,
    accessorFn: (row: Row) => column.value?.(row) ?? undefined,
    enableSorting: column.value !== undefined,
    sortUndefined: "last",
    sortDescFirst: column.sortFirst && column.sortFirst === "down",
  }));
}

interface HeaderProps<Row> {
  column: Column<Row>;
  sorted: false | "asc" | "desc";
  onSort?: (event: unknown) => void;
}

function HeaderCell<Row>({ column, sorted, onSort }: HeaderProps<Row>) {
  const direction = sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : undefined;
  return (
    <th
      scope="col"
      aria-sort={direction}
      data-numeric={column.numeric || undefined}
      data-sticky={column.sticky || undefined}
      style={{ width: column.width }}
    >
      {column.value && onSort ? (
        <button type="button" className={classes.sort} onClick={onSort}>
          {column.header}
          <span aria-hidden>{sorted === "asc" ? " ↑" : sorted === "desc" ? " ↓" : ""}</span>
        </button>
      ) : (
        column.header || <span className="visually-hidden">Actions</span>
      )}
    </th>
  );
}
