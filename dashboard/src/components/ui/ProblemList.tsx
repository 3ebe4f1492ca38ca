import type { Issue } from "@/lib/spec/schema";
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
          <code>YAML</code> {message}
        </li>
      ))}
      {issues.map(({ pointer, message }) => (
        <li key={pointer + message}>
          {pointer ? (
            <button type="button" className={classes.link} onClick={() => onShow(pointer)}>
              <code>{pointer}</code>
            </button>
          ) : (
            <code>{noun}</code>
          )}{" "}
          {message}
        </li>
      ))}
    </ul>
  );
}
