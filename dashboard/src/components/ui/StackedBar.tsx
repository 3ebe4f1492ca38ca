import type { ReactNode } from "react";
import classes from "./StackedBar.module.css";

export interface BarPart {
  name: string;
  value: number;
  /** A colour token of styles.css. */
  color: string;
}

interface Props {
  parts: readonly BarPart[];
  /** What the bar shows, with every figure: colours alone say nothing. */
  label: string;
  size?: "sm" | "md";
}

/** Parts of a whole, side by side. */
export function StackedBar({ parts, label, size = "md" }: Props) {
  const total = parts.reduce((sum, { value }) => sum + value, 0);
  return (
    <div className={classes.bar} role="img" aria-label={label} title={label} data-size={size}>
      {parts
        .filter(({ value }) => value > 0)
        .map(({ name, value, color }) => (
          <span
            key={name}
            className={classes.part}
            style={{ flexGrow: (100 * value) / total, background: `var(${color})` }}
          />
        ))}
    </div>
  );
}

/** A name, with its colour before it. */
export function Keyed({ color, children }: { color: string; children: ReactNode }) {
  return (
    <span className={classes.keyed}>
      <span className={classes.swatch} style={{ background: `var(${color})` }} aria-hidden />
      {children}
    </span>
  );
}
