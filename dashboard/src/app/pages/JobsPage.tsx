import { Button } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { IconPlus } from "@tabler/icons-react";
import { DocsLink } from "@/components/ui/DocsLink";
import { EmptyPage } from "@/components/ui/EmptyPage";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { PageHeader } from "@/components/ui/PageHeader";
import { experimentQuery } from "@/features/experiments/api/experiments";
import { jobListQuery } from "@/features/jobs/api/jobs";
import { ColumnsMenu } from "@/features/jobs/components/ColumnsMenu";
import { FilterChip, JobFilters } from "@/features/jobs/components/JobFilters";
import { JobPages } from "@/features/jobs/components/JobPages";
import { JobsTable } from "@/features/jobs/components/JobsTable";
import { Selection } from "@/features/jobs/components/Selection";
import { ViewsMenu } from "@/features/jobs/components/ViewsMenu";
import {
  FIRST_COLUMNS,
  isLimited,
  knownColumns,
  NO_LIMITS,
  orNone,
  queryOf,
  type ColumnId,
  type JobListView,
} from "@/features/jobs/view";
import { jobsSearch, MOST_COMPARED } from "../search";

const route = getRouteApi("/shell/jobs");

export function JobsPage() {
  const { pick = [], columns, ...filter } = route.useSearch();
  const navigate = route.useNavigate();
  // A view without columns of its own has those that were chosen last in this browser.
  const [own, setOwn] = useLocalStorage<ColumnId[] | null>({ key: "paceline.jobs.columns", defaultValue: null });
  const query = useQuery(jobListQuery(filter));
  // Another filter or order is another list: its pages start anew.
  const change = (part: Partial<JobListView>) =>
    void navigate({
      search: { ...filter, columns, pick: orNone(pick), cursor: undefined, ...part },
      replace: part.q !== undefined,
    });
  const choose = (picked: string[]) =>
    void navigate({ search: { ...filter, columns, pick: orNone(picked) }, replace: true, resetScroll: false });
  const chooseColumns = (chosen: ColumnId[] | undefined) => {
    setOwn(chosen ?? null);
    change({ columns: chosen, cursor: filter.cursor });
  };
  const shown = columns ?? knownColumns(own) ?? FIRST_COLUMNS;
  return (
    <>
      <PageHeader title="Jobs" actions={<NewJob />} />
      <Panel
        label="Jobs"
        title={
          <>
            <JobFilters filter={filter} onChange={change} />
            {filter.experiment !== undefined && (
              <ExperimentChip reference={filter.experiment} onRemove={() => change({ experiment: undefined })} />
            )}
          </>
        }
        actions={
          <>
            {pick.length > 0 && <Selection ids={pick} mostCompared={MOST_COMPARED} onClear={() => choose([])} />}
            <ViewsMenu
              query={queryOf({ ...filter, columns })}
              onChoose={(saved) =>
                void navigate({ search: jobsSearch(Object.fromEntries(new URLSearchParams(saved))) })
              }
            />
            <ColumnsMenu shown={shown} onChange={chooseColumns} />
          </>
        }
        flush
      >
        <PanelStates
          source={query}
          what="the jobs"
          rows={8}
          isEmpty={(page) => page.items.length === 0}
          empty={
            filter.cursor !== undefined ? (
              <EmptyPage />
            ) : isLimited(filter) ? (
              <NothingMatches onClear={() => change(NO_LIMITS)} />
            ) : (
              <NoJobs />
            )
          }
        >
          {(page) => (
            <JobsTable
              jobs={page.items}
              columns={shown}
              sort={filter.sort ?? "-created_at"}
              onSort={(sort) => change({ sort })}
              picked={pick}
              onPick={choose}
            />
          )}
        </PanelStates>
      </Panel>
      {query.data && (
        <JobPages page={query.data} isFirst={filter.cursor === undefined} onTurn={(cursor) => change({ cursor })} />
      )}
    </>
  );
}

const ID = /^[0-9A-Z]{26}$/;

/** Whose trials the list is limited to, by name once it is known. */
function ExperimentChip({ reference, onRemove }: { reference: string; onRemove(): void }) {
  const { data } = useQuery({ ...experimentQuery(reference), enabled: ID.test(reference) });
  return <FilterChip name="Experiment" value={data?.name ?? reference} onRemove={onRemove} />;
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
      Your training runs will be listed here, with their state, loss and progress, live. Start from a template: a small
      GPT trains in minutes on two CPU slots. Or from a terminal: <code>paceline submit job.yaml --follow</code>.{" "}
      <DocsLink page="first_hour.html">Your first hour</DocsLink>
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
    >
      Archived jobs are left out unless the filter asks for them.
    </EmptyState>
  );
}
