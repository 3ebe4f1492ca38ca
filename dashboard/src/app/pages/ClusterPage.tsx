import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { nodesQuery } from "@/features/cluster/api/cluster";
import { NodesPanel } from "@/features/cluster/components/NodesPanel";
import { PoolsPanel } from "@/features/cluster/components/PoolsPanel";
import { SummaryTiles } from "@/features/cluster/components/SummaryTiles";
import { IdleCards } from "@/features/metrics/components/IdleCards";
import { NodeHistory } from "@/features/metrics/components/NodeHistory";
import type { ClusterSearch } from "../search";

const route = getRouteApi("/shell/cluster");

export function ClusterPage() {
  const { add = false, find, state, card, ...history } = route.useSearch();
  const navigate = route.useNavigate();
  const change = (part: Partial<ClusterSearch>, { replace = true } = {}) =>
    void navigate({ search: (before) => ({ ...before, ...part }), replace, resetScroll: false });
  const { data: nodes } = useQuery(nodesQuery);
  const shown = nodes?.filter((node) => node.state !== "gone") ?? [];
  return (
    <>
      <PageHeader title="Cluster" />
      <div className="stack">
        <SummaryTiles />
        <IdleCards />
        {shown.length > 0 && <NodeHistory nodes={shown} view={history} onView={change} />}
        <NodesPanel
          adding={add}
          onAdding={(adding) => change({ add: adding || undefined }, { replace: false })}
          view={{ find, state, card }}
          onView={change}
        />
        <PoolsPanel />
      </div>
    </>
  );
}
