import { IconDatabaseOff } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import { dateTime } from "@/lib/format";
import type { Job } from "@/lib/types";

/** Why the curves and the log of a job are empty: its data was deleted on request. */
export function DataRemovedNotice({ job }: { job: Job }) {
  const removal = job.data_removal;
  if (!removal) return null;
  return (
    <Notice
      icon={IconDatabaseOff}
      label="Data deleted"
      title={removal.state === "removed" ? "This job's data was deleted" : "This job's data is being deleted"}
    >
      <div className="muted">
        {removal.asked_by} requested it on {dateTime(removal.asked_at)}: points, curves, log lines, traces, gradients,
        media and files
        {removal.checkpoints ? ", and the checkpoints" : ""}.
      </div>
    </Notice>
  );
}
