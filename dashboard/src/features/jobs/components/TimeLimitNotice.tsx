import { IconClockStop } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import { count, duration } from "@/lib/format";
import { isTerminal } from "@/lib/jobs";
import type { Job } from "@/lib/types";

/** The job ended at its time limit; how to continue. */
export function TimeLimitNotice({ job }: { job: Job }) {
  if (!isTerminal(job.state) || job.end_reason !== "time_limit") return null;
  return (
    <Notice
      icon={IconClockStop}
      label="Time limit"
      title={`The job reached its time limit of ${duration(job.time_limit_seconds)}`}
      tone="warn"
    >
      <div className="muted">{wayOn(job)}</div>
    </Notice>
  );
}

/** The newest checkpoint of a job whose loss is no longer finite is spoilt too. */
function wayOn({ progress: { last_checkpoint_step: saved, not_finite_step: spoilt } }: Job): string {
  if (saved == null) return "Submit the job again with a longer time_limit.";
  const which = spoilt == null ? "its newest checkpoint" : `a checkpoint from before step ${count(spoilt)}`;
  return `Restore ${which} (Checkpoints) to continue from there, with the same limit again.`;
}
