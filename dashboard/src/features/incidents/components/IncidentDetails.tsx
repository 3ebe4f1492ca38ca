import { FailureDetails } from "@/components/ui/FailureDetails";
import { Keyed } from "@/components/ui/StackedBar";
import { itsWords } from "@/lib/failures";
import { percent, sentence, shortTime } from "@/lib/format";
import type { Incident } from "@/lib/types";
import { PHASES } from "../incidents";
import classes from "./Incidents.module.css";

/** What was done and why, the phases as a table, and what the culprit said. */
export function IncidentDetails({ incident }: { incident: Incident }) {
  const { culprit, done, why } = incident;
  return (
    <>
      <p className={classes.done}>{sentence(done)}.</p>
      <p className={classes.why}>{sentence(why)}.</p>
      <div className={classes.columns}>
        <PhaseTable incident={incident} />
        {culprit && (
          <div className={classes.culprit}>
            {itsWords(culprit) && <div className={classes.words}>{itsWords(culprit)}</div>}
            <FailureDetails jobId={incident.job_id} failure={culprit} open />
          </div>
        )}
      </div>
    </>
  );
}

function PhaseTable({ incident: { phases, outage_seconds: outage } }: { incident: Incident }) {
  const total = phases.reduce((sum, { seconds }) => sum + seconds, 0);
  return (
    <table className={classes.phases} aria-label="Phases of the outage">
      <thead>
        <tr>
          <th scope="col">Phase</th>
          <th scope="col">Meaning</th>
          <th scope="col" data-numeric>
            Time
          </th>
          <th scope="col" data-numeric>
            Share
          </th>
        </tr>
      </thead>
      <tbody>
        {phases.map(({ name, seconds, under_way: running }) => (
          <tr key={name}>
            <td>
              <Keyed color={PHASES[name].color}>{PHASES[name].label}</Keyed>
            </td>
            <td className={classes.meaning}>
              {PHASES[name].meaning}
              {running && "; under way"}
            </td>
            <td data-numeric>{shortTime(seconds)}</td>
            <td data-numeric>{percent(total > 0 ? seconds / total : null)}</td>
          </tr>
        ))}
      </tbody>
      {outage !== null && (
        <tfoot>
          <tr>
            <th scope="row" colSpan={2}>
              Outage
            </th>
            <td data-numeric>{shortTime(outage)}</td>
            <td />
          </tr>
        </tfoot>
      )}
    </table>
  );
}
