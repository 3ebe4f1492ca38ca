import type { ReactNode } from "react";
import classes from "./Facts.module.css";

export interface Fact {
  name: string;
  value: ReactNode;
  hint?: string;
}

/** A row of named values, as a definition list. */
export function Facts({ facts, size = "md" }: { facts: readonly Fact[]; size?: "md" | "sm" }) {
  return (
    <dl className={classes.facts} data-size={size}>
      {facts.map(({ name, value, hint }) => (
        <div key={name} className={classes.fact}>
          <dt>{name}</dt>
          <dd>{value}</dd>
          {hint && <dd className={classes.hint}>{hint}</dd>}
        </div>
      ))}
    </dl>
  );
}
