import { Button } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { DocsLink } from "@/components/ui/DocsLink";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { useRoleRefusal } from "@/lib/ownership";
import type { NodePool } from "@/lib/types";
import { poolsQuery } from "../api/pools";
import classes from "./Cluster.module.css";
import { PoolCard } from "./PoolCard";
import { PoolDialog } from "./PoolDialog";

/** Pools of nodes: their sizes, what they have used, and why they do not grow. */
export function PoolsPanel() {
  const query = useQuery(poolsQuery);
  const refused = useRoleRefusal("admin");
  const [edited, setEdited] = useState<NodePool | "new" | null>(null);
  const add = (
    <Guarded refused={refused}>
      <Button variant="default" leftSection={<IconPlus size={14} />} onClick={() => setEdited("new")}>
        New pool
      </Button>
    </Guarded>
  );
  return (
    <Panel title="Pools" actions={add} flush>
      <PanelStates
        source={query}
        what="the pools"
        rows={3}
        isEmpty={(pools) => pools.length === 0}
        empty={
          <EmptyState title="No pools">
            A pool has nodes of one kind, which the coordinator starts by SSH, Slurm, Kubernetes or Ray, when you ask
            for them or as jobs need them. <DocsLink page="nodes.html">Your machines</DocsLink>
          </EmptyState>
        }
      >
        {(pools) => (
          <ul className={classes.pools} aria-label="Pools">
            {pools.map((pool) => (
              <PoolCard key={pool.name} pool={pool} onEdit={() => setEdited(pool)} />
            ))}
          </ul>
        )}
      </PanelStates>
      {edited !== null && <PoolDialog pool={edited === "new" ? null : edited} onClose={() => setEdited(null)} />}
    </Panel>
  );
}
