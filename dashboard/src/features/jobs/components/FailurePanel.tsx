import { IconAlertOctagon } from "@tabler/icons-react";
import { plural } from "@/lib/format";
import type { Failure } from "@/lib/types";
import classes from "./Notices.module.css";

/** The causing rank first: its node, exception and last lines; the ranks it dragged down folded under it. */
export function FailurePanel({ failure, ended }: { failure: Failure; ended: boolean }) {
  const victims = failure.victims ?? [];
  const lines = failure.last_lines ?? [];
  return (
    <section className={classes.notice} data-tone={ended ? "bad" : "neutral"} aria-label="Failure">
      <IconAlertOctagon size={18} aria-hidden />
      <div>
        <strong>{ended ? "Caused by" : "Last failure:"} rank {failure.rank} on {failure.node_name}</strong>, step {failure.step ?? 0}, generation {failure.generation} · {exitOf(failure)}
        <div><code>{failure.exception || failure.kind}</code>{failure.message && `: ${failure.message}`}</div>
        {failure.traceback && <Folded title="Traceback" text={failure.traceback} open={ended} />}
        {lines.length > 0 && <Folded title={`Last ${plural(lines.length, "line")} of rank ${failure.rank}`} text={lines.join("\n")} open={ended && !failure.traceback} />}
        {victims.length > 0 && <Victims victims={victims} />}
      </div>
    </section>
  );
}

function exitOf(failure: Failure): string {
  if (failure.signal) return `killed by ${failure.signal}`;
  return failure.exit_code == null ? failure.kind.replaceAll("_", " ") : `exit code ${failure.exit_code}`;
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
      {victims.map((victim) => (
        <div key={victim.rank} className={classes.victim}>
          rank {victim.rank} on {victim.node_name} · {exitOf(victim)} · <span className="muted">{victim.message}</span>
        </div>
      ))}
    </details>
  );
}
