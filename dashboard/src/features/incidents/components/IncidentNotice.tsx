import { IconBolt } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import { sentence } from "@/lib/format";
import type { Incident } from "@/lib/types";
import { actionWords, headline } from "../incidents";
import { IncidentDetails } from "./IncidentDetails";
import { RunningAge } from "./IncidentRow";
import classes from "./Incidents.module.css";

/** A fault that the job is recovering from: what failed, what is being done, and since when. */
export function IncidentNotice({ incident, readAt }: { incident: Incident; readAt: number }) {
  return (
    <Notice icon={IconBolt} label="Incident under way" title={headline(incident)} tone="warn">
      <div>
        {sentence(actionWords(incident))}:{" "}
        <span className="tabular">
          <RunningAge seconds={incident.age_seconds} readAt={readAt} />
        </span>
      </div>
      <details className={classes.more}>
        <summary>Details</summary>
        <IncidentDetails incident={incident} />
      </details>
    </Notice>
  );
}
