import { useState, type ReactNode } from "react";
import type { Issue } from "@/lib/spec/schema";
import classes from "./FormSection.module.css";

interface Props {
  name: string;
  open?: boolean;
  /** Of its fields: they unfold it. */
  issues: readonly Issue[];
  /** What is wrong with the section as a whole. */
  own?: string;
  /** What limits all its fields; left out where `own` says what is wrong. */
  note?: string | null;
  /** Where the documentation describes its fields. */
  docs?: string;
  children: ReactNode;
}

/** A part of a form that folds. A problem unfolds it, and once it is solved the section stays as it is: the field that was typed in must not vanish. */
export function FormSection({ name, open = false, issues, own, note, docs, children }: Props) {
  const [unfolded, setUnfolded] = useState(open);
  if (issues.length > 0 && !unfolded) setUnfolded(true);
  return (
    <details
      className={classes.section}
      open={unfolded}
      onToggle={(event) => event.currentTarget.open !== unfolded && setUnfolded(event.currentTarget.open)}
    >
      <summary className={classes.sectionName}>
        {name}
        {issues.length > 0 && (
          <span className={classes.problems}>{issues.length === 1 ? "1 problem" : `${issues.length} problems`}</span>
        )}
      </summary>
      {unfolded && (
        <div className={classes.body}>
          {own ? (
            <p className={classes.own} role="alert">
              {own}
            </p>
          ) : (
            note && <p className={classes.limit}>{note}</p>
          )}
          {children}
          {docs && (
            <a
              className={classes.docs}
              href={docs}
              target="_blank"
              rel="noopener"
              aria-label={`About these fields: ${name}`}
            >
              About these fields
            </a>
          )}
        </div>
      )}
    </details>
  );
}
