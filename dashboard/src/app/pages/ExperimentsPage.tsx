import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { IconPlus } from "@tabler/icons-react";
import { PageHeader } from "@/components/ui/PageHeader";
import { DocsLink } from "@/components/ui/DocsLink";
import { EmptyPage } from "@/components/ui/EmptyPage";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { experimentListQuery, type ExperimentFilter } from "@/features/experiments/api/experiments";
import { ExperimentFilters } from "@/features/experiments/components/ExperimentFilters";
import { ExperimentsTable } from "@/features/experiments/components/ExperimentsTable";

const route = getRouteApi("/shell/experiments");

export function ExperimentsPage() {
  const filter = route.useSearch();
  const navigate = route.useNavigate();
  const query = useQuery(experimentListQuery(filter));
  // Another filter or order is another list: its pages start anew.
  const change = (part: Partial<ExperimentFilter>) =>
    void navigate({ search: { ...filter, cursor: undefined, ...part }, replace: "q" in part || "project" in part });
  const filtered = filter.q !== undefined || filter.status !== undefined || filter.project !== undefined;
  const next = query.data?.next_cursor;
  return (
    <>
      <PageHeader title="Experiments" actions={<NewExperiment />} />
      <Panel
        label="Experiments"
        title={<ExperimentFilters key={filtered ? "filtered" : "all"} filter={filter} onChange={change} />}
        flush
      >
        <PanelStates
          source={query}
          what="the experiments"
          rows={6}
          isEmpty={({ items }) => items.length === 0}
          empty={
            filter.cursor !== undefined ? (
              <EmptyPage />
            ) : filtered ? (
              <NothingMatches onClear={() => change({ q: undefined, status: undefined, project: undefined })} />
            ) : (
              <NoExperiments />
            )
          }
        >
          {({ items }) => (
            <ExperimentsTable
              experiments={items}
              sort={filter.sort ?? "-created_at"}
              onSort={(sort) => change({ sort })}
            />
          )}
        </PanelStates>
      </Panel>
      {(next || filter.cursor) && (
        <nav aria-label="Pages" style={{ display: "flex", gap: 8, marginTop: 12, justifyContent: "flex-end" }}>
          {filter.cursor && (
            <Button variant="default" onClick={() => change({})}>
              First page
            </Button>
          )}
          {next && (
            <Button variant="default" onClick={() => change({ cursor: next })}>
              Next page
            </Button>
          )}
        </nav>
      )}
    </>
  );
}

function NewExperiment() {
  return (
    <Button component={Link} to="/experiments/new" leftSection={<IconPlus size={14} />}>
      New experiment
    </Button>
  );
}

function NoExperiments() {
  return (
    <EmptyState title="No experiments yet" action={<NewExperiment />}>
      An experiment runs one job in many configurations and says which to take: numbers of ranks, strategies, batch
      sizes, or any field. Begin from a job with <em>Vary this</em> on its page, or from a terminal:{" "}
      <code>paceline experiment run experiment.yaml</code>.{" "}
      <DocsLink page="experiments.html">About experiments</DocsLink>
    </EmptyState>
  );
}

function NothingMatches({ onClear }: { onClear(): void }) {
  return (
    <EmptyState
      title="No experiment matches"
      action={
        <Button variant="default" onClick={onClear}>
          Clear filters
        </Button>
      }
    />
  );
}
