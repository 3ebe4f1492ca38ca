import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { DocsLink } from "@/components/ui/DocsLink";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { useRoleRefusal } from "@/lib/ownership";
import { nodesQuery } from "../api/cluster";
import { MOST_CARDS } from "../nodeList";
import { AddNode } from "./AddNode";
import classes from "./Cluster.module.css";
import { ComingNodes } from "./ComingNodes";
import { NodeCard } from "./NodeCard";
import { NodesTable, type NodesView } from "./NodesTable";

interface Props {
  adding: boolean;
  onAdding(adding: boolean): void;
  /** Of many nodes. */
  view: NodesView;
  onView(view: NodesView): void;
}

export function NodesPanel({ adding, onAdding, view, onView }: Props) {
  const query = useQuery(nodesQuery);
  const refused = useRoleRefusal("admin");
  const add = (
    <Guarded refused={refused}>
      <Button leftSection={<IconPlus size={14} />} onClick={() => onAdding(true)}>
        Add node
      </Button>
    </Guarded>
  );
  const shown = query.data?.filter((node) => node.state !== "gone") ?? [];
  return (
    <Panel title="Nodes" actions={add} flush>
      <ComingNodes />
      <PanelStates
        source={query}
        what="the nodes"
        rows={6}
        isEmpty={() => shown.length === 0}
        empty={
          <EmptyState title="No nodes yet" action={add}>
            Your machines will be here, with their GPUs and the jobs on them. Add one to have slots to train on: the
            dialog prints the command to run there. <DocsLink page="second_machine.html">Adding a machine</DocsLink>
          </EmptyState>
        }
      >
        {() =>
          shown.length > MOST_CARDS ? (
            <NodesTable nodes={shown} view={view} onView={onView} />
          ) : (
            <div className={classes.grid}>
              {shown.map((node) => (
                <NodeCard key={node.id} node={node} />
              ))}
            </div>
          )
        }
      </PanelStates>
      {adding && refused === null && query.data && <AddNode known={query.data} onClose={() => onAdding(false)} />}
    </Panel>
  );
}
