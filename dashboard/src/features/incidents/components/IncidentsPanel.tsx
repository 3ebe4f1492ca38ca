import { useQuery } from "@tanstack/react-query";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { plural } from "@/lib/format";
import type { Incident, Job } from "@/lib/types";
import { incidentsQuery } from "../api/incidents";
import { IncidentRow } from "./IncidentRow";
import classes from "./Incidents.module.css";

/** The incident log: a row for each fault, and each node that a person removed at once, newest first, with what was done and what it cost; one that is under way shows itself running. */
export function IncidentsPanel({ job }: { job: Job }) {
  const query = useQuery(incidentsQuery(job.id));
  const faults = (query.data ?? []).filter(({ cause }) => cause !== "node_removed").length;
  return (
    <Panel title="Incidents" actions={faults > 0 && <span className="hint">{plural(faults, "fault")}</span>} flush>
      <PanelStates
        source={query}
        what="the incidents"
        isEmpty={(incidents) => incidents.length === 0}
        empty={<NoIncidents job={job} />}
      >
        {(incidents) => <IncidentsTable incidents={incidents} readAt={query.dataUpdatedAt} />}
      </PanelStates>
    </Panel>
  );
}

function NoIncidents({ job }: { job: Job }) {
  const alone = job.world_size === 1;
  const restarts = job.spec?.fault_tolerance?.recovery !== "close_up";
  return (
    <EmptyState title="No incidents">
      No rank of this job has failed. If one does, you will see here what happened, how it was handled, and what it
      cost.
      {restarts && !alone && (
        <>
          {" "}
          The job would restart from its newest checkpoint. With <code>fault_tolerance.recovery: close_up</code>, the
          other ranks would continue instead.
        </>
      )}
    </EmptyState>
  );
}

function IncidentsTable({ incidents, readAt }: { incidents: readonly Incident[]; readAt: number }) {
  return (
    <div className={classes.scroller}>
      <table className={classes.table} aria-label="Incidents">
        <thead>
          <tr>
            <th scope="col">
              <span className="visually-hidden">Details</span>
            </th>
            <th scope="col">When</th>
            <th scope="col">What happened</th>
            <th scope="col">Action</th>
            <th scope="col" className={classes.outageColumn}>
              Outage
            </th>
            <th scope="col" data-numeric data-wide>
              Steps lost
            </th>
            <th scope="col" data-numeric data-wide>
              Ranks after
            </th>
          </tr>
        </thead>
        {[...incidents].reverse().map((incident) => (
          <IncidentRow key={incident.id} incident={incident} readAt={readAt} />
        ))}
      </table>
    </div>
  );
}
