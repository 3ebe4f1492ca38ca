import { useState, type ReactNode } from "react";
import { EmptyState, Panel } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import classes from "./Experiments.module.css";

interface Props {
  title: string;
  /** What is chosen of it: an axis, a figure. */
  controls?: ReactNode;
  /** More choices than have room beside the title. */
  tools?: ReactNode;
  legend?: ReactNode;
  /** The drawing in words. */
  sentence: string;
  /** The same values as the drawing. */
  table: ReactNode;
  /** Why there is nothing to draw, and what would change that. */
  empty?: string | null;
  children: ReactNode;
}

/** A drawing with its words and its table. */
export function Figure({ title, controls, tools, legend, sentence, table, empty, children }: Props) {
  const [asTable, setAsTable] = useState(false);
  if (empty)
    return (
      <Panel title={title} flush>
        <EmptyState title="Nothing to draw">{empty}</EmptyState>
      </Panel>
    );
  return (
    <Panel
      title={title}
      actions={
        <>
          {controls}
          <TableToggle pressed={asTable} onChange={setAsTable} what={title} />
        </>
      }
      flush
    >
      {tools && <div className={classes.tools}>{tools}</div>}
      {!asTable && legend && <div className={classes.legend}>{legend}</div>}
      {asTable ? <div className={classes.figureTable}>{table}</div> : children}
      <p className={classes.sentence}>{sentence}</p>
    </Panel>
  );
}
