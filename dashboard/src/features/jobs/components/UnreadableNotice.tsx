import { IconFileAlert } from "@tabler/icons-react";
import type { Job } from "@/lib/types";
import classes from "./Notices.module.css";

/** A job whose stored spec this version of the coordinator refuses: why, and what can be done with it. */
export function UnreadableNotice({ job }: { job: Job }) {
  if (job.unreadable == null) return null;
  return (
    <section className={classes.notice} data-tone="warn" aria-label="Unreadable spec">
      <IconFileAlert size={18} aria-hidden />
      <div>
        <strong>This version cannot read the job's spec</strong>
        <div>{job.unreadable}</div>
        <div className="muted">It is left as it is: its ranks run on, and it is neither placed nor restarted. Cancel it and submit it anew, or go back to the version that stored it.</div>
      </div>
    </section>
  );
}
