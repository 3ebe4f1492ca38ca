import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Facts } from "@/components/ui/Facts";
import { Guarded } from "@/components/ui/Guarded";
import { ProgressBar } from "@/components/ui/ProgressBar";
import { count } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { NodePool } from "@/lib/types";
import { autoscaleInWords, budgetShare, providerOf } from "../pools";
import classes from "./Cluster.module.css";
import { DeletePool } from "./DeletePool";

export function PoolCard({ pool, onEdit }: { pool: NodePool; onEdit(): void }) {
  const refused = useRoleRefusal("admin");
  const [isDeleting, setIsDeleting] = useState(false);
  const labels = Object.entries(pool.labels).map(([key, value]) => `${key}=${value}`);
  return (
    <li className={classes.card}>
      <div className={classes.poolHeader}>
        <h3 className={classes.cardName}>{pool.name}</h3>
        <span className={classes.note}>
          {[providerOf(pool), pool.spot && "spot", ...labels].filter(Boolean).join(" · ")}
        </span>
        <span className={classes.cardActions}>
          <Guarded refused={refused}>
            <Button size="compact-xs" variant="default" aria-label={`Edit ${pool.name}`} onClick={onEdit}>
              Edit
            </Button>
          </Guarded>
          <Guarded refused={refused}>
            <Button
              size="compact-xs"
              variant="default"
              aria-label={`Delete ${pool.name}`}
              onClick={() => setIsDeleting(true)}
            >
              Delete
            </Button>
          </Guarded>
        </span>
      </div>
      {pool.unreadable != null && (
        <p className={classes.note} role="alert">
          This version cannot read the pool, and leaves it as it is: edit it, or go back to the version that stored it.{" "}
          {pool.unreadable}
        </p>
      )}
      <Facts size="sm" facts={factsOf(pool)} />
      {budgetShare(pool) !== null && (
        <ProgressBar
          share={budgetShare(pool)}
          tone={budgetShare(pool) === 1 ? "bad" : "active"}
          label={`Budget of ${pool.name} that is used`}
        />
      )}
      <Withheld pool={pool} />
      {isDeleting && <DeletePool pool={pool} onClose={() => setIsDeleting(false)} />}
    </li>
  );
}

function factsOf(pool: NodePool) {
  const budget = pool.autoscale?.budget_node_hours;
  const hours = (pool.node_hours ?? 0).toLocaleString("en-US", { maximumFractionDigits: 1 });
  return [
    { name: "Nodes", value: count(pool.nodes), hint: `${pool.min_nodes} to ${pool.max_nodes}` },
    { name: "Coming", value: count(pool.coming) },
    { name: "Slots of a node", value: pool.slots === null ? "as the machine has" : count(pool.slots) },
    {
      name: "Node-hours this month",
      value: budget == null ? hours : `${hours} of ${budget.toLocaleString("en-US")}`,
      hint: budget != null && budgetShare(pool) === 1 ? "The budget is used: it grows no more" : undefined,
    },
    { name: "Autoscale", value: pool.autoscale ? "on" : "off", hint: autoscaleInWords(pool) ?? "people ask for nodes" },
  ];
}

/** Pending jobs that no node of the pool is launched for. */
function Withheld({ pool }: { pool: NodePool }) {
  if (pool.withheld.length === 0) return null;
  const more = pool.withheld_count - pool.withheld.length;
  return (
    <div className={classes.withheld}>
      <p className={classes.note}>Pending jobs that no node is launched for:</p>
      <ul aria-label={`Jobs that ${pool.name} does not grow for`}>
        {pool.withheld.map((job) => (
          <li key={job.job_id}>
            <Link to="/jobs/$jobId" params={{ jobId: job.job_id }}>
              {job.job_name}
            </Link>
            : {job.reason}
          </li>
        ))}
        {more > 0 && <li>and {count(more)} more</li>}
      </ul>
    </div>
  );
}
