import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { meQuery } from "@/features/auth/api/session";
import { NodesPanel } from "@/features/cluster/components/NodesPanel";
import { SummaryTiles } from "@/features/cluster/components/SummaryTiles";

const route = getRouteApi("/shell/cluster");

export function ClusterPage() {
  const { add = false } = route.useSearch();
  const navigate = route.useNavigate();
  const { data: me } = useQuery(meQuery);
  return (
    <>
      <PageHeader title="Cluster" />
      <div className="stack">
        <SummaryTiles />
        <NodesPanel
          adding={add}
          canChange={me?.role === "admin"}
          onAdding={(adding) => void navigate({ search: { add: adding || undefined } })}
        />
      </div>
    </>
  );
}
