import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { PageHeader } from "@/components/ui/PageHeader";
import { allCheckpointsQuery } from "@/features/checkpoints/api/checkpoints";
import { AllCheckpointsPanel } from "@/features/checkpoints/components/AllCheckpointsPanel";

const route = getRouteApi("/shell/checkpoints");

export function CheckpointsPage() {
  const filter = route.useSearch();
  const turn = route.useNavigate();
  const navigate = useNavigate();
  const next = useQuery(allCheckpointsQuery(filter)).data?.next_cursor;
  return (
    <>
      <PageHeader title="Checkpoints" />
      <AllCheckpointsPanel
        filter={filter}
        onSearch={(q) => void turn({ search: { q }, replace: true })}
        onRestored={(jobId) => void navigate({ to: "/jobs/$jobId", params: { jobId }, search: {} })}
      />
      {(next || filter.cursor) && (
        <nav aria-label="Pages" style={{ display: "flex", gap: 8, marginTop: 12, justifyContent: "flex-end" }}>
          {filter.cursor && (
            <Button variant="default" onClick={() => void turn({ search: { q: filter.q } })}>
              First page
            </Button>
          )}
          {next && (
            <Button variant="default" onClick={() => void turn({ search: { q: filter.q, cursor: next } })}>
              Next page
            </Button>
          )}
        </nav>
      )}
    </>
  );
}
