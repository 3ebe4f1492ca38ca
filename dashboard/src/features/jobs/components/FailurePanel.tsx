import { IconAlertOctagon } from "@tabler/icons-react";
import { FailureDetails } from "@/components/ui/FailureDetails";
import { itsWords, whatHappened } from "@/lib/failures";
import { count } from "@/lib/format";
import type { Failure } from "@/lib/types";
import classes from "./Notices.module.css";

interface Props {
  failure: Failure;
  /** It is what ended the job; else the job goes on. */
  ended: boolean;
  /** What Paceline did about it, and why. */
  outcome?: string;
}

/** The causing rank first: its node, signal or exception, and its last lines; the ranks it dragged down folded under it. */
export function FailurePanel({ failure, ended, outcome }: Props) {
  const words = itsWords(failure);
  return (
    <section className={classes.notice} data-tone={ended ? "bad" : "neutral"} aria-label="Failure">
      <IconAlertOctagon size={18} aria-hidden />
      <div>
        <strong>{whatHappened(failure)}</strong>
        {words && <div className={classes.words}>{words}</div>}
        {failure.where && <div>in your code: <code>{failure.where}</code></div>}
        <div className="muted">
          {ended ? "The cause" : "The last failure"}, at step {count(failure.step ?? 0)} of generation {failure.generation}{exitOf(failure)}
          {outcome && <> · {outcome}</>}
        </div>
        <FailureDetails failure={failure} open={ended} />
      </div>
    </section>
  );
}

function exitOf({ exit_code, signal }: Failure): string {
  return signal || exit_code == null ? "" : `, exit code ${exit_code}`;
}
