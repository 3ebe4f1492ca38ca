import { useQueries } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { PageHeader } from "@/components/ui/PageHeader";
import { Comparisons } from "@/features/compare/components/Comparisons";
import { jobIdQuery } from "@/features/jobs/api/jobs";
import { JobPicker } from "@/features/jobs/components/JobPicker";
import { MediaBoard } from "@/features/media/components/MediaBoard";
import { lossUnitOf } from "@/features/metrics/catalog";
import { RunCharts } from "@/features/metrics/components/RunCharts";
import { jobQuery } from "@/lib/jobQuery";
import { isTerminal, startOf } from "@/lib/jobs";
import { MOST_COMPARED, type CompareSearch } from "../search";

const route = getRouteApi("/shell/compare");

const DEFAULT_METRICS = ["loss"];

/** Runs beside each other: are they the same, and if not, where do they part? */
export function ComparePage() {
  const search = route.useSearch();
  const { jobs = [] } = search;
  const navigate = route.useNavigate();
  const change = (part: Partial<CompareSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...part }), replace: true, resetScroll: false });
  const named = useNamedJobs(jobs);
  return (
    <>
      <PageHeader
        title="Compare runs"
        before={
          <Link to="/jobs" className="back">
            Jobs
          </Link>
        }
      />
      {named.note && (
        <p className="hint" role="status">
          {named.note}
        </p>
      )}
      <JobPicker
        chosen={named.data ?? []}
        most={MOST_COMPARED}
        onChange={(chosen) => change({ jobs: chosen.length > 0 ? chosen : undefined })}
      />
      {named.data === undefined ? (
        <Panel label="Comparison" flush>
          <PanelStates source={named} what="the jobs">
            {() => null}
          </PanelStates>
        </Panel>
      ) : named.data.length < 2 ? (
        <ChooseMore chosen={named.data.length} />
      ) : (
        <Compared ids={named.data} search={search} change={change} />
      )}
    </>
  );
}

/**
 * The ids of jobs that the URL calls by id or by name, and a note on names that several jobs have. The URL then has ids: a newer job
 * may take a name.
 */
function useNamedJobs(references: readonly string[]) {
  const navigate = route.useNavigate();
  const results = useQueries({ queries: references.map(jobIdQuery) });
  const found = results.flatMap(({ data }) => (data === undefined ? [] : [data.id]));
  const ambiguous = results.flatMap(({ data }, index) =>
    data !== undefined && data.namesakes > 1 ? [`${data.namesakes} jobs are called ${references[index]!}`] : [],
  );
  const [note, setNote] = useState<string>();
  const newNote =
    ambiguous.length > 0
      ? `${ambiguous.join(", ")}. The newest one that is not archived is compared; choose another below.`
      : undefined;
  if (newNote !== undefined && newNote !== note) setNote(newNote);
  const ids = found.length === references.length ? [...new Set(found)] : undefined;
  const replacement = ids?.join() === references.join() ? undefined : ids?.join();
  useEffect(() => {
    if (replacement !== undefined)
      void navigate({ search: (before) => ({ ...before, jobs: replacement.split(",") }), replace: true });
  }, [replacement, navigate]);
  return {
    data: ids,
    note,
    error: results.find(({ error }) => error !== null)?.error ?? null,
    isPending: results.some(({ isPending }) => isPending),
    dataUpdatedAt: Math.min(...results.map(({ dataUpdatedAt }) => dataUpdatedAt)),
    refetch: () => results.map((result) => result.refetch()),
  };
}

function ChooseMore({ chosen }: { chosen: number }) {
  return (
    <Panel label="Comparison" flush>
      <EmptyState title={chosen === 0 ? "Choose two jobs" : "Choose another job"}>
        Each job is compared with the first one, step by step and bit by bit. A reproducible run is the same on any
        number of ranks, through crashes, pauses and resizes.
      </EmptyState>
    </Panel>
  );
}

function Compared({
  ids,
  search,
  change,
}: {
  ids: readonly string[];
  search: CompareSearch;
  change(part: Partial<CompareSearch>): void;
}) {
  const known = useQueries({ queries: ids.map(jobQuery) });
  const jobs = ids.map((id, index) => {
    const job = known[index]!.data;
    return {
      id,
      name: job?.name ?? id,
      live: job !== undefined && !isTerminal(job.state),
      lossUnit: lossUnitOf(job),
      project: job?.project,
      startedAt: job ? startOf(job) : 0,
    };
  });
  return (
    <div className="stack">
      <RunCharts
        jobs={jobs}
        metrics={search.metrics ?? DEFAULT_METRICS}
        view={search}
        onMetrics={(metrics) => change({ metrics: metrics.length > 0 ? metrics : undefined })}
        onView={change}
      />
      <MediaBoard
        runs={jobs}
        step={search.mediaStep}
        range={null}
        onStep={(mediaStep) => change({ mediaStep })}
        quiet
      />
      <Comparisons jobs={ids} live={jobs.some(({ live }) => live)} />
    </div>
  );
}
