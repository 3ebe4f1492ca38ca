import { Button } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useId, useState } from "react";
import { count } from "@/lib/format";
import classes from "./Media.module.css";

interface Props {
  /** In order; at least one. */
  steps: readonly number[];
  step: number;
  /** The newest step is shown, whatever comes. */
  newest: boolean;
  onStep(step: number | undefined): void;
}

/** While the slider is dragged, what is shown is asked for this often. */
const DRAG_MS = 120;

/** One of the steps at which something is logged. The browser's own slider: arrows, Page Up, Home and End move it. */
export function StepSlider({ steps, step, newest, onStep }: Props) {
  const id = useId();
  const [dragged, setDragged] = useState<number | null>(null);
  const tell = useDebouncedCallback((to: number) => {
    onStep(to);
    setDragged(null);
  }, DRAG_MS);
  const shown = dragged ?? step;
  const at = Math.max(0, steps.indexOf(shown));
  return (
    <div className={classes.slider}>
      <label htmlFor={id}>Step</label>
      <input
        id={id}
        type="range"
        min={0}
        max={steps.length - 1}
        step={1}
        value={at}
        disabled={steps.length < 2}
        aria-valuetext={`Step ${count(shown)}, ${at + 1} of ${steps.length}`}
        onChange={(event) => {
          const to = steps[Number(event.currentTarget.value)]!;
          setDragged(to);
          tell(to);
        }}
      />
      <output htmlFor={id} className={classes.step}>
        {count(shown)}
      </output>
      {!newest && (
        <Button size="compact-sm" variant="default" onClick={() => onStep(undefined)}>
          Newest
        </Button>
      )}
    </div>
  );
}
