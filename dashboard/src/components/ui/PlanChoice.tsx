import { bytes, sentence, shortTime } from "@/lib/format";
import type { PlanChoice as Choice, PlanOption } from "@/lib/types";
import { DataTable, type Column } from "./DataTable";
import classes from "./PlanChoice.module.css";

const COLUMNS: readonly Column<PlanOption>[] = [
  { id: "name", header: "Plan", prose: true, cell: (row) => row.name },
  {
    id: "memory",
    header: "Memory",
    cell: (row) => bytes(row.memory_bytes),
    value: (row) => row.memory_bytes,
    numeric: true,
  },
  {
    id: "step",
    header: "Step",
    cell: (row) => shortTime(row.step_seconds),
    value: (row) => row.step_seconds,
    numeric: true,
  },
  { id: "why", header: "Why not", prose: true, cell: (row) => row.why || <strong>chosen</strong> },
];

/** What strategy auto chose, why, and what became of the other plans. */
export function PlanChoice({ choice }: { choice: Choice }) {
  return (
    <section className={classes.choice} aria-label="Plan that was chosen">
      <p className={classes.why}>{choice.why}</p>
      <p className={classes.note}>
        Requested: {choice.asked.join(", ")}. Memory budget: {bytes(choice.budget_bytes)} per rank.{" "}
        {sentence(choice.assumed)}.
      </p>
      <DataTable
        label="Plans by estimated memory"
        rows={[choice.chosen, ...choice.rejected]}
        columns={COLUMNS}
        rowId={(row) => row.name}
      />
      {choice.not_told > 0 && <p className={classes.note}>{choice.not_told} more plans are not listed.</p>}
    </section>
  );
}
