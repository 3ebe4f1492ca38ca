import { IconHourglass } from "@tabler/icons-react";
import { Fragment } from "react";
import { Notice } from "@/components/ui/Notice";
import { sentence } from "@/lib/format";
import type { Reason } from "@/lib/types";
import classes from "./Jobs.module.css";

/** Why a job is not running: what is missing, what would fit, why no node is launched, what to do. */
export function PendingPanel({ reason }: { reason: Reason }) {
  return (
    <Notice icon={IconHourglass} label="Why this job is waiting" title={sentence(reason.text)}>
      <dl className={classes.points}>
        {points(reason).map(([name, text]) => (
          <Fragment key={name}>
            <dt className="muted">{name}</dt>
            <dd>{text}</dd>
          </Fragment>
        ))}
      </dl>
      <code className="muted">{reason.code}</code>
    </Notice>
  );
}

function points({ text, missing, nearest_fit: fit, no_launch: noLaunch, next_step: next }: Reason) {
  const named = [
    ["Missing", missing],
    ["Nearest fit", fit && !text.includes(fit) ? fit : null],
    ["No new node", noLaunch],
    ["Next", next],
  ] as const;
  return named.filter(([, said]) => said);
}
