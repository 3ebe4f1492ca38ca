import { IconUsersMinus } from "@tabler/icons-react";
import { plural, sentence } from "@/lib/format";
import { smallWorld } from "@/lib/jobs";
import type { Job } from "@/lib/types";
import classes from "./Notices.module.css";

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
    <section className={classes.notice} data-tone="warn" aria-label="Fewer ranks than asked">
      <IconUsersMinus size={18} aria-hidden />
      <div>
        <strong>Runs with {small} ranks</strong>
        {fault && <div>{fault}; the others carry on with the same global batch, each with more of it.</div>}
        <div className="muted">{nextStep(job)}</div>
      </div>
    </section>
  );
}

/** The coordinator's text says first what the notice is titled with. */
const STANDING = /^runs with \d+ of \d+ ranks; /;

function nextStep({ pending, ranks }: Job): string {
  if (pending) return `${sentence(pending.text.replace(STANDING, ""))}.${pending.next_step ? ` Next: ${pending.next_step}.` : ""}`;
  const warming = (ranks ?? []).filter(({ parked }) => parked).length;
  if (warming > 0) return `${plural(warming, "rank")} ${warming === 1 ? "warms up" : "warm up"} beside the running ones, to join after a step.`;
  return "Replacements warm up beside the running ranks as soon as there are slots, and join after a step.";
}
