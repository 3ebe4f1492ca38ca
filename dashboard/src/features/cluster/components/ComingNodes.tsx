import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Guarded } from "@/components/ui/Guarded";
import { StateBadge } from "@/components/ui/StateBadge";
import { asApiError } from "@/lib/errors";
import { useRoleRefusal } from "@/lib/ownership";
import type { NodeLaunch } from "@/lib/types";
import { launchesQuery, useCancelLaunch } from "../api/launches";
import classes from "./Cluster.module.css";

/** Nodes that are to come, with what they wait for; those that could not be started, with the reason and the way out. */
export function ComingNodes() {
  const { data } = useQuery(launchesQuery);
  if (!data || data.length === 0) return null;
  return (
    <ul className={classes.coming} aria-label="Nodes that are to come">
      {data.map((launch) => (
        <ComingNode key={launch.id} launch={launch} />
      ))}
    </ul>
  );
}

function ComingNode({ launch }: { launch: NodeLaunch }) {
  const cancel = useCancelLaunch(launch.id);
  const refused = useRoleRefusal("admin");
  const verb = launch.state === "failed" ? "Dismiss" : "Cancel";
  const why = launch.failure || launch.reason;
  return (
    <li className={classes.card}>
      <div className={classes.cardHeader}>
        <span className={classes.cardName}>{launch.name}</span>
        <StateBadge state={launch.state} tone={launch.state === "failed" ? "bad" : "active"}>
          {launch.wanted || launch.state === "failed" ? launch.state : "being ended"}
        </StateBadge>
        <span className={classes.note}>{launch.pool ? `pool ${launch.pool}` : launch.provider}</span>
        <span className={classes.cardActions}>
          {(launch.wanted || launch.state === "failed") && (
            <Guarded refused={refused}>
              <Button
                size="compact-xs"
                variant="default"
                aria-label={`${verb} ${launch.name}`}
                loading={cancel.isPending}
                onClick={() => cancel.mutate()}
              >
                {verb}
              </Button>
            </Guarded>
          )}
        </span>
      </div>
      {(why || launch.remedy) && (
        <p className={launch.failure ? classes.staleNote : classes.note}>
          {why}
          {launch.remedy && <span> To solve it: {launch.remedy}</span>}
        </p>
      )}
      {cancel.error && (
        <p className={classes.actionError} role="alert">
          {asApiError(cancel.error).message}
        </p>
      )}
    </li>
  );
}
