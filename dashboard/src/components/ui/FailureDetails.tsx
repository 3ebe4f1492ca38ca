import { howItEnded, itsWords, lastLines, unseenTraceback } from "@/lib/failures";
import { plural } from "@/lib/format";
import type { Failure } from "@/lib/types";
import classes from "./FailureDetails.module.css";

/** What a rank left behind: its last lines, its traceback if they do not show it, and, folded, the ranks it dragged down. */
export function FailureDetails({ failure, open = false }: { failure: Failure; open?: boolean }) {
  const lines = lastLines(failure);
  const traceback = unseenTraceback(failure);
  const victims = failure.victims ?? [];
  return (
    <>
      {lines.length > 0 && <Folded title={`Last ${plural(lines.length, "line")} of rank ${failure.rank}`} text={lines.join("\n")} open={open} />}
      {traceback && <Folded title="Traceback" text={traceback} open={open && lines.length === 0} />}
      {lines.length === 0 && !traceback && <p className={classes.none}>It printed nothing before that.</p>}
      {victims.length > 0 && <Victims victims={victims} />}
    </>
  );
}

/** The last lines say what happened. */
function showEnd(element: HTMLPreElement | null) {
  element?.scrollTo(0, element.scrollHeight);
}

function Folded({ title, text, open }: { title: string; text: string; open: boolean }) {
  return (
    <details className={classes.details} open={open}>
      <summary>{title}</summary>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls must be reachable by keyboard */}
      <pre ref={showEnd} className={classes.lines} tabIndex={0} role="region" aria-label={title}>{text}</pre>
    </details>
  );
}

function Victims({ victims }: { victims: readonly Failure[] }) {
  return (
    <details className={classes.details}>
      <summary>{plural(victims.length, "rank")} dragged down by it</summary>
      <ul className={classes.victims}>
        {victims.map((victim) => (
          <li key={victim.rank}>
            Rank {victim.rank} on {victim.node_name} {howItEnded(victim)}
            {itsWords(victim) && <div className={classes.words}>{itsWords(victim)}</div>}
          </li>
        ))}
      </ul>
    </details>
  );
}
