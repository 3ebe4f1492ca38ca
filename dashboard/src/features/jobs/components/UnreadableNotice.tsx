import { IconFileAlert } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import type { Job } from "@/lib/types";

/** A job whose stored spec this version of the coordinator refuses: why, and what can be done with it. */
export function UnreadableNotice({ job }: { job: Job }) {
  if (job.unreadable == null) return null;
  return (
    <Notice
      icon={IconFileAlert}
      label="Unreadable spec"
      title="This version of Paceline cannot read the job's spec"
      tone="warn"
    >
      <div>{job.unreadable}</div>
      <div className="muted">
        The job is left as it is: running ranks keep running, but it is neither scheduled nor restarted. Cancel it and
        submit it again, or go back to the version that stored it.
      </div>
    </Notice>
  );
}
