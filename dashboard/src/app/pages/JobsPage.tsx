import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { IconArrowsDiff, IconPlus, IconX } from "@tabler/icons-react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { PageHeader } from "@/components/ui/PageHeader";
import { experimentQuery } from "@/features/experiments/api/experiments";
import { jobListQuery, type JobFilter } from "@/features/jobs/api/jobs";
import { JobFilters } from "@/features/jobs/components/JobFilters";
import { JobsTable } from "@/features/jobs/components/JobsTable";
import { MOST_COMPARED } from "../search";

const route = getRouteApi("/shell/jobs");

export function JobsPage() {
  const { pick = [], ...filter } = route.useSearch();
  const navigate = route.useNavigate();
  const query = useQuery(jobListQuery(filter));
  // Another filter or order is another list: its pages start anew.
  const change = (part: Partial<JobFilter>) =>
    void navigate({
      search: { ...filter, pick: orNone(pick), cursor: undefined, ...part },
      replace: part.q !== undefined,
    });
  const choose = (picked: string[]) => void navigate({ search: { ...filter, pick: orNone(picked) }, replace: true });
  const filtered = filter.q !== undefined || filter.status !== undefined || filter.experiment !== undefined;
  const next = query.data?.next_cursor;
  return (
    <>
      <PageHeader title="Jobs" actions={<NewJob />} />
      <Panel
        label="Jobs"
        title={
          <>
            <JobFilters filter={filter} onChange={change} />
            {filter.experiment !== undefined && (
              <ExperimentChip id={filter.experiment} onRemove={() => change({ experiment: undefined })} />
            )}
          </>
        }
        actions={pick.length > 0 && <Picked ids={pick} onClear={() => choose([])} />}
        flush
      >
        <PanelStates
          source={query}
          what="the jobs"
          rows={8}
          isEmpty={(page) => page.items.length === 0}
          empty={
            filtered ? (
              <NothingMatches onClear={() => change({ q: undefined, status: undefined, experiment: undefined })} />
            ) : (
              <NoJobs />
            )
          }
        >
          {(page) => (
            <JobsTable
              jobs={page.items}
              sort={filter.sort ?? "-created_at"}
              onSort={(sort) => change({ sort })}
              picked={pick}
              mostPicked={MOST_COMPARED}
              onPick={choose}
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

/** Whose trials the list is limited to, by name once it is known. */
function ExperimentChip({ id, onRemove }: { id: string; onRemove(): void }) {
  const { data } = useQuery(experimentQuery(id));
  const name = data?.name ?? id;
  return (
    <Button
      variant="light"
      rightSection={<IconX size={14} aria-hidden />}
      aria-label={`Experiment ${name}: remove this filter`}
      onClick={onRemove}
    >
      Experiment: {name}
    </Button>
  );
}

function orNone(picked: string[]): string[] | undefined {
  return picked.length > 0 ? picked : undefined;
}

function Picked({ ids, onClear }: { ids: string[]; onClear(): void }) {
  const full = ids.length === MOST_COMPARED;
  return (
    <>
      <span className="hint" role="status">
        {ids.length === 1 ? "1 selected" : `${ids.length} selected${full ? ", the most that can be compared" : ""}`}
      </span>
      <Button variant="default" onClick={onClear}>
        Clear
      </Button>
      <Button component={Link} to="/compare" search={{ jobs: ids } as never} leftSection={<IconArrowsDiff size={14} />}>
        {ids.length === 1 ? "Compare with…" : `Compare ${ids.length} jobs`}
      </Button>
    </>
  );
}

function NewJob() {
  return (
    <Button component={Link} to="/jobs/new" leftSection={<IconPlus size={14} />}>
      New job
    </Button>
  );
}

function NoJobs() {
  return (
    <EmptyState title="No jobs yet" action={<NewJob />}>
      Start from an example: a small GPT on the text of the Python standard library trains in minutes on two CPU slots.
      Or from a terminal: <code>paceline submit job.yaml --follow</code>
    </EmptyState>
  );
}

function NothingMatches({ onClear }: { onClear(): void }) {
  return (
    <EmptyState
      title="No job matches"
      action={
        <Button variant="default" onClick={onClear}>
          Clear filters
        </Button>
      }
    />
  );
}
