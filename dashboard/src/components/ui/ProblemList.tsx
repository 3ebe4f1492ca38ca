import type { Issue } from "@/lib/spec/schema";
import { Marked } from "./Marked";
import classes from "./Document.module.css";

interface Props {
  /** What the document is, for problems of the whole of it. */
  noun: string;
  problems: readonly { from: number; message: string }[];
  issues: readonly Issue[];
  /** Leads to the field at a JSON pointer. */
  onShow(pointer: string): void;
}

/** All that is wrong with a document, each problem with a link to its field. */
export function ProblemList({ noun, problems, issues, onShow }: Props) {
  return (
    <ul className={classes.problemList} aria-label="Problems">
      {problems.map(({ from, message }) => (
        <li key={from}>
          <code className={classes.place}>YAML</code> <Marked text={message} />
        </li>
      ))}
      {issues.map(({ pointer, message }) => (
        <li key={pointer + message}>
          {pointer ? (
            <button type="button" className={classes.link} onClick={() => onShow(pointer)}>
              <code className={classes.place}>{pointer}</code>
            </button>
          ) : (
            <code className={classes.place}>{noun}</code>
          )}{" "}
          <Marked text={message} />
        </li>
      ))}
    </ul>
  );
}
