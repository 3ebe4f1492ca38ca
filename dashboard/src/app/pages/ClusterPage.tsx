import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { nodesQuery } from "@/features/cluster/api/cluster";
import { NodesPanel } from "@/features/cluster/components/NodesPanel";
import { PoolsPanel } from "@/features/cluster/components/PoolsPanel";
import { SummaryTiles } from "@/features/cluster/components/SummaryTiles";
import { IdleCards } from "@/features/metrics/components/IdleCards";
import { NodeHistory } from "@/features/metrics/components/NodeHistory";

const route = getRouteApi("/shell/cluster");

export function ClusterPage() {
  const { add = false, ...view } = route.useSearch();
  const navigate = route.useNavigate();
  const { data: nodes } = useQuery(nodesQuery);
  const shown = nodes?.filter((node) => node.state !== "gone") ?? [];
  return (
    <>
      <PageHeader title="Cluster" />
      <div className="stack">
        <SummaryTiles />
        <IdleCards />
        {shown.length > 0 && (
          <NodeHistory
            nodes={shown}
            view={view}
            onView={(chosen) => void navigate({ search: { ...chosen, add: add || undefined }, replace: true })}
          />
        )}
        <NodesPanel
          adding={add}
          onAdding={(adding) => void navigate({ search: { ...view, add: adding || undefined } })}
        />
        <PoolsPanel />
      </div>
    </>
  );
}
