import { IconDatabaseOff } from "@tabler/icons-react";
import { dateTime } from "@/lib/format";
import type { Job } from "@/lib/types";
import classes from "./Notices.module.css";

/** Somebody had the job's data deleted: why its curves and log are empty. */
export function DataRemovedNotice({ job }: { job: Job }) {
  const removal = job.data_removal;
  if (!removal) return null;
  return (
    <section className={classes.notice} aria-label="Data deleted">
      <IconDatabaseOff size={18} aria-hidden />
      <div>
        <strong>{removal.state === "removed" ? "Its data was deleted" : "Its data is being deleted"}</strong>
        <div className="muted">
          {removal.asked_by} asked for it on {dateTime(removal.asked_at)}: points, curves, log lines and traces{removal.checkpoints ? ", and the checkpoints" : ""}.
        </div>
      </div>
    </section>
  );
}
