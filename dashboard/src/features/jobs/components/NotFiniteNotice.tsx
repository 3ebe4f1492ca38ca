import { IconAlertTriangle } from "@tabler/icons-react";
import { count } from "@/lib/format";
import type { Job } from "@/lib/types";
import classes from "./Notices.module.css";

/** The loss is NaN or infinite: what follows is of no use, and the checkpoint to go back to is kept. */
export function NotFiniteNotice({ job }: { job: Job }) {
  const step = job.progress.not_finite_step;
  if (step == null) return null;
  return (
    <section className={classes.notice} data-tone="bad" aria-label="Loss not finite">
      <IconAlertTriangle size={18} aria-hidden />
      <div>
        <strong>The loss is not finite since step {count(step)}</strong>
        <div className="muted">What is trained from there on is of no use. The last checkpoint from before it is kept, and can be restored into a new job.</div>
      </div>
    </section>
  );
}
