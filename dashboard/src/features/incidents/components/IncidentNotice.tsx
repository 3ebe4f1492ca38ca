import { IconBolt } from "@tabler/icons-react";
import { sentence } from "@/lib/format";
import type { Incident } from "@/lib/types";
import { actionWords, headline } from "../incidents";
import { IncidentDetails } from "./IncidentDetails";
import { RunningAge } from "./IncidentRow";
import classes from "./IncidentNotice.module.css";

/** A fault whose recovery is under way: what fell, what is being done, since when. */
export function IncidentNotice({ incident, readAt }: { incident: Incident; readAt: number }) {
  return (
    <section className={classes.notice} aria-label="Incident under way">
      <IconBolt size={18} aria-hidden />
      <div className={classes.body}>
        <strong>{headline(incident)}</strong>
        <div>{sentence(actionWords(incident))}: <span className="tabular"><RunningAge seconds={incident.age_seconds} readAt={readAt} /></span></div>
        <details className={classes.details}>
          <summary>What is known of it</summary>
          <IncidentDetails incident={incident} />
        </details>
      </div>
    </section>
  );
}
