import { DataTable, type Column } from "@/components/ui/DataTable";
import { Panel } from "@/components/ui/Panel";
import { MISSING, count, sentence, shortTime } from "@/lib/format";
import type { CommunicationChoice as Choice } from "@/lib/types";
import classes from "./Performance.module.css";

type Option = Choice["options"][number];

const step = (seconds: number | null) => (seconds === null ? MISSING : shortTime(seconds));

const COLUMNS: readonly Column<Option>[] = [
  {
    id: "name",
    header: "Way",
    prose: true,
    cell: ({ name, taken }) => (taken ? <strong>{name} (in use)</strong> : name),
    value: ({ name }) => name,
  },
  {
    id: "predicted",
    header: "Predicted step",
    cell: ({ predicted_seconds: seconds }) => step(seconds),
    value: ({ predicted_seconds: seconds }) => seconds ?? Infinity,
    numeric: true,
  },
  {
    id: "measured",
    header: "Measured step",
    cell: ({ measured_seconds: seconds }) => step(seconds),
    value: ({ measured_seconds: seconds }) => seconds ?? Infinity,
    numeric: true,
  },
];

/** How `communication: auto` sums gradients, and what the other ways would take. */
export function CommunicationPanel({ choice }: { choice: Choice }) {
  return (
    <Panel title="How gradients are summed" flush>
      <p className={classes.decision}>
        {sentence(choice.text)}. Decided after step {count(choice.step)}; {choice.links}.
      </p>
      <DataTable
        label="Ways to sum gradients by the time of a step"
        rows={choice.options}
        columns={COLUMNS}
        rowId={({ name }) => name}
      />
    </Panel>
  );
}
