import { useQueries } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { EmptyState, Panel } from "@/components/ui/Panel";
import { PageHeader } from "@/components/ui/PageHeader";
import { Comparisons } from "@/features/compare/components/Comparisons";
import { jobQuery } from "@/features/jobs/api/jobs";
import { JobPicker } from "@/features/jobs/components/JobPicker";
import { lossUnitOf } from "@/features/metrics/catalog";
import { OverlayChart } from "@/features/metrics/components/OverlayChart";
import { isTerminal } from "@/lib/jobs";
import { MOST_COMPARED, type CompareSearch } from "../search";

const route = getRouteApi("/shell/compare");

/** Runs beside each other: are they the same, and if not, where do they part? */
export function ComparePage() {
  const { jobs = [], metric = "loss" } = route.useSearch();
  const navigate = route.useNavigate();
  const change = (part: Partial<CompareSearch>) =>
    void navigate({ search: (search) => ({ ...search, ...part }), replace: true });
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
      <JobPicker
        chosen={jobs}
        most={MOST_COMPARED}
        onChange={(chosen) => change({ jobs: chosen.length > 0 ? chosen : undefined })}
      />
      {jobs.length < 2 ? (
        <ChooseMore chosen={jobs.length} />
      ) : (
        <Compared
          ids={jobs}
          metric={metric}
          onMetric={(chosen) => change({ metric: chosen === "loss" ? undefined : chosen })}
        />
      )}
    </>
  );
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
  metric,
  onMetric,
}: {
  ids: readonly string[];
  metric: string;
  onMetric(metric: string): void;
}) {
  const known = useQueries({ queries: ids.map(jobQuery) });
  const jobs = ids.map((id, index) => ({
    id,
    name: known[index]!.data?.name ?? id,
    live: known[index]!.data !== undefined && !isTerminal(known[index]!.data.state),
    lossUnit: lossUnitOf(known[index]!.data),
  }));
  return (
    <div className="stack">
      <Comparisons jobs={ids} live={jobs.some(({ live }) => live)} />
      <OverlayChart jobs={jobs} metric={metric} onMetric={onMetric} />
    </div>
  );
}
