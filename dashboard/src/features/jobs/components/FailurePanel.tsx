import { IconAlertOctagon } from "@tabler/icons-react";
import { FailureDetails } from "@/components/ui/FailureDetails";
import { Notice, Verbatim } from "@/components/ui/Notice";
import { decisionAfter, headline, itsWords } from "@/lib/failures";
import { count } from "@/lib/format";
import type { Failure } from "@/lib/types";

interface Props {
  jobId: string;
  failure: Failure;
  /** It is what ended the job; else the job goes on. */
  ended: boolean;
  /** What Paceline did about it, and why. */
  outcome?: string;
}

/** Where in the user's code it failed, with which message, then the traceback and the last lines; the ranks that failed as a result are folded. */
export function FailurePanel({ jobId, failure, ended, outcome }: Props) {
  const words = itsWords(failure);
  return (
    <Notice icon={IconAlertOctagon} label="Failure" title={headline(failure)} tone={ended ? "bad" : "neutral"}>
      {words && <Verbatim>{words}</Verbatim>}
      <div className="muted">
        {ended ? "The cause" : "The last failure"}, {failure.step ? `at step ${count(failure.step)} of` : "in"}{" "}
        generation {failure.generation}
        {exitOf(failure)}
        {outcome && <> · {decisionAfter(failure, outcome)}</>}
      </div>
      <FailureDetails jobId={jobId} failure={failure} open={ended} />
    </Notice>
  );
}

function exitOf({ exit_code, signal }: Failure): string {
  return signal || exit_code == null ? "" : `, exit code ${exit_code}`;
}
