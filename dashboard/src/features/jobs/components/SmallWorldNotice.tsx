import { IconUsersMinus } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import { plural, sentence } from "@/lib/format";
import { smallWorld } from "@/lib/jobs";
import type { Job } from "@/lib/types";

interface Props {
  job: Job;
  /** What made it smaller, where that was a fault. */
  fault?: string;
}

/** A job that runs with fewer ranks than it should have: since what, and what comes next. */
export function SmallWorldNotice({ job, fault }: Props) {
  const small = smallWorld(job);
  if (small === null) return null;
  return (
    <Notice icon={IconUsersMinus} label="Fewer ranks than asked" title={`Runs with ${small} ranks`} tone="warn">
      {fault && (
        <div>
          {fault}.{" "}
          {job.spec?.script != null
            ? "The other ranks restarted."
            : "The other ranks continue with the same global batch; each takes a larger share of it."}
        </div>
      )}
      <div className="muted">{nextStep(job)}</div>
    </Notice>
  );
}

/** The coordinator's text says first what the notice is titled with. */
const STANDING = /^runs (with \d+ of \d+ ranks|on \d+ of \d+ nodes); /;

function nextStep({ pending, ranks, spec }: Job): string {
  if (pending)
    return `${sentence(pending.text.replace(STANDING, ""))}.${pending.next_step ? ` Next: ${pending.next_step}.` : ""}`;
  if (spec?.script != null) return "It starts again on more nodes as soon as there is room for them.";
  const warming = (ranks ?? []).filter(({ parked }) => parked).length;
  if (warming > 0)
    return `${plural(warming, "rank")} ${warming === 1 ? "warms up" : "warm up"} beside the running ones, to join after a step.`;
  return "Replacements warm up beside the running ranks as soon as there are slots, and join after a step.";
}
