import { IconHourglass } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import { sentence } from "@/lib/format";
import type { Reason } from "@/lib/types";
import classes from "./Jobs.module.css";

/** Why a job is not running: what is missing, what would fit, why no node is launched, what to do. */
export function PendingPanel({ reason }: { reason: Reason }) {
  return (
    <Notice icon={IconHourglass} label="Why this job is waiting" title={sentence(reason.text)}>
      <ul className={classes.points}>
        {reason.missing && (
          <li>
            <span className="muted">Missing</span> {reason.missing}
          </li>
        )}
        {reason.nearest_fit && !reason.text.includes(reason.nearest_fit) && (
          <li>
            <span className="muted">Nearest fit</span> {reason.nearest_fit}
          </li>
        )}
        {reason.no_launch && (
          <li>
            <span className="muted">No new node</span> {reason.no_launch}
          </li>
        )}
        {reason.next_step && (
          <li>
            <span className="muted">Next</span> {reason.next_step}
          </li>
        )}
      </ul>
      <code className="muted">{reason.code}</code>
    </Notice>
  );
}
