import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { nodesQuery } from "../api/cluster";
import { AddNode } from "./AddNode";
import classes from "./Cluster.module.css";
import { NodeCard } from "./NodeCard";

interface Props {
  adding: boolean;
  canChange: boolean;
  onAdding(adding: boolean): void;
}

export function NodesPanel({ adding, canChange, onAdding }: Props) {
  const query = useQuery(nodesQuery);
  const add = canChange && (
    <Button leftSection={<IconPlus size={14} />} onClick={() => onAdding(true)}>
      Add node
    </Button>
  );
  const shown = query.data?.filter((node) => node.state !== "gone") ?? [];
  return (
    <Panel title="Nodes" actions={add} flush>
      <PanelStates
        source={query}
        what="the nodes"
        rows={6}
        isEmpty={() => shown.length === 0}
        empty={
          <EmptyState title="No nodes yet" action={add}>
            A node is a machine that runs the agent. Add one to have slots to train on.
          </EmptyState>
        }
      >
        {() => (
          <div className={classes.grid}>
            {shown.map((node) => (
              <NodeCard key={node.id} node={node} canChange={canChange} />
            ))}
          </div>
        )}
      </PanelStates>
      {adding && query.data && <AddNode known={query.data} onClose={() => onAdding(false)} />}
    </Panel>
  );
}
