import { Button } from "@mantine/core";
import { useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { bytes, count, plural } from "@/lib/format";
import type { Performance } from "@/lib/types";
import classes from "./Performance.module.css";

type PeakMemory = Performance["peak_memory"][number];

const COLUMNS: readonly Column<PeakMemory>[] = [
  { id: "rank", header: "Rank", cell: ({ rank }) => rank, value: ({ rank }) => rank, numeric: true, width: 90 },
  { id: "bytes", header: "Peak memory", cell: (row) => bytes(row.bytes), value: (row) => row.bytes, numeric: true },
];
/** More ranks than this are folded to the fullest and the emptiest. */
const MOST_ROWS = 12;
const AT_EACH_END = 4;

/** Peak memory by rank. Of many ranks the fullest and the emptiest tell what there is to know: the others are between them. */
export function PeakMemoryTable({ peaks }: { peaks: readonly PeakMemory[] }) {
  const [unfolded, setUnfolded] = useState(false);
  const many = peaks.length > MOST_ROWS;
  const shown = many && !unfolded ? ends(peaks) : peaks;
  const hidden = peaks.length - shown.length;
  return (
    <div>
      <DataTable label="Peak memory by rank" rows={shown} columns={COLUMNS} rowId={({ rank }) => String(rank)} />
      {many && (
        <p className={classes.folded}>
          {hidden > 0 && `The fullest and the emptiest ${AT_EACH_END} of ${count(peaks.length)} ranks. `}
          <Button size="compact-xs" variant="default" onClick={() => setUnfolded(!unfolded)}>
            {unfolded ? "Show the ends only" : `Show ${plural(hidden, "more rank")}`}
          </Button>
        </p>
      )}
    </div>
  );
}

/** The fullest ranks, then the emptiest, fullest first. */
function ends(peaks: readonly PeakMemory[]): PeakMemory[] {
  const sorted = [...peaks].sort((a, b) => b.bytes - a.bytes || a.rank - b.rank);
  return [...sorted.slice(0, AT_EACH_END), ...sorted.slice(-AT_EACH_END)];
}
