import { Input } from "@mantine/core";
import { useId, useState } from "react";
import { readRange, type StepRange, type TypedRange } from "../stepRange";
import type { ChartView } from "../view";
import classes from "./Metrics.module.css";

interface Props {
  view: ChartView;
  /** The last step that the run has reported; undefined where only a part of the run is loaded. */
  newestStep(): number | undefined;
  onView(change: Partial<ChartView>): void;
}

interface EnteredRange extends TypedRange {
  problem: string | null;
}

/** The steps that all charts show, typed. What means no range stays in the fields with the reason, and the charts stay as they are. */
export function StepRangeFields({ view, newestStep, onView }: Props) {
  const id = useId();
  const saved = enteredOf(view);
  const [entered, setEntered] = useState(saved);
  const [known, setKnown] = useState(saved);
  // Another range, as after zooming, replaces what is typed.
  if (!isSame(saved, known)) {
    setKnown(saved);
    setEntered(saved);
  }
  const commit = () => {
    if (isSame(entered, known)) return setEntered(known);
    const range = readRange(entered, newestStep());
    if (typeof range === "string") return setEntered({ ...entered, problem: range });
    setEntered(enteredOf(range ?? {}));
    onView({ from: range?.from, to: range?.to });
  };
  const field = (end: keyof TypedRange, label: string) => (
    <Input
      aria-label={label}
      // One sentence is about both fields.
      withAria={false}
      aria-invalid={entered.problem !== null}
      aria-describedby={entered.problem === null ? undefined : id}
      placeholder={label}
      value={entered[end]}
      error={entered.problem !== null}
      w={104}
      inputMode="numeric"
      onChange={(event) => setEntered({ ...entered, [end]: event.currentTarget.value })}
      onBlur={commit}
      onKeyDown={(event) => event.key === "Enter" && commit()}
    />
  );
  return (
    <>
      {field("from", "From step")}
      {field("to", "To step")}
      {entered.problem !== null && (
        <span id={id} className={classes.problem} role="alert">
          {entered.problem}
        </span>
      )}
    </>
  );
}

function enteredOf({ from, to }: Partial<StepRange>): EnteredRange {
  return { from: String(from ?? ""), to: String(to ?? ""), problem: null };
}

function isSame(one: TypedRange, other: TypedRange): boolean {
  return one.from === other.from && one.to === other.to;
}
