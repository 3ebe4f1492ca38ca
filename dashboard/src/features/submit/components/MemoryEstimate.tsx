import { Keyed, StackedBar } from "@/components/ui/StackedBar";
import { bytes, sentence } from "@/lib/format";
import type { Memory } from "@/lib/types";
import classes from "./Submit.module.css";

const PARTS = [
  { part: "parameters", name: "Parameters", color: "--series-1" },
  { part: "gradients", name: "Gradients", color: "--series-2" },
  { part: "optimizer", name: "Optimizer", color: "--series-3" },
  { part: "activations", name: "Activations", color: "--series-4" },
  { part: "buffers", name: "Buffers", color: "--series-5" },
] as const;

/** What a rank holds at its fullest moment, part by part, and what the estimate was made from. */
export function MemoryEstimate({ memory }: { memory: Memory }) {
  const parts = PARTS.map(({ part, name, color }) => ({ name, color, value: memory[part] }));
  return (
    <section className={classes.memory} aria-label="Memory per rank">
      <StackedBar parts={parts} label={parts.map(({ name, value }) => `${name} ${bytes(value)}`).join(", ")} />
      <ul className={classes.memoryParts}>
        {parts.map(({ name, color, value }) => (
          <li key={name}>
            <Keyed color={color}>{name}</Keyed> <span className={classes.amount}>{bytes(value)}</span>
          </li>
        ))}
      </ul>
      <p className={classes.note}>
        Memory peaks {memory.moment}. Assumes {memory.made_from}. {sentence(memory.note)}.
      </p>
    </section>
  );
}
