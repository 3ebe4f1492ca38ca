import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { CheckpointsPanel } from "@/features/checkpoints/components/CheckpointsPanel";
import { Timeline } from "@/features/events/components/Timeline";
import { jobQuery } from "@/features/jobs/api/jobs";
import { FailurePanel } from "@/features/jobs/components/FailurePanel";
import { JobHeader } from "@/features/jobs/components/JobHeader";
import { PendingPanel } from "@/features/jobs/components/PendingPanel";
import { GenerationsTable, RanksTable } from "@/features/jobs/components/RanksTable";
import { SpecView } from "@/features/jobs/components/SpecView";
import type { LogFilter } from "@/features/logs/api/logs";
import { LogPanel } from "@/features/logs/components/LogPanel";
import { Charts, type ChartView } from "@/features/metrics/components/Charts";
import { useMetricsFeed, type MetricsFeed } from "@/features/metrics/useMetricsFeed";
import { useStoreVersion } from "@/features/metrics/useStoreVersion";
import { isTerminal } from "@/lib/jobs";
import type { Job, JobProgress } from "@/lib/types";
import { TABS, type JobSearch, type Tab } from "../search";
import { Tabs } from "./Tabs";

const route = getRouteApi("/shell/jobs/$jobId");

export function JobPage() {
  const { jobId } = route.useParams();
  const query = useQuery(jobQuery(jobId));
  return query.data ? (
    <>
      {query.error ? <Panel label="Job" flush><PanelStates source={query} what="this job">{() => null}</PanelStates></Panel> : null}
      <JobView key={jobId} job={query.data} />
    </>
  ) : (
    <Panel label="Job" flush><PanelStates source={query} what="this job" rows={8}>{() => null}</PanelStates></Panel>
  );
}

function JobView({ job }: { job: Job }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const live = !isTerminal(job.state);
  const { from, to, rank = 0 } = search;
  const range = from !== undefined && to !== undefined && from < to ? { from, to } : null;
  const feed = useMetricsFeed({ jobId: job.id, range, rank }, live);
  const change = (part: Partial<JobSearch>) => void navigate({ search: { ...search, ...part }, replace: true });
  const failed = job.failure && (job.state === "failed" || live);
  return (
    <>
      <JobHeader job={job} progress={useLiveProgress(job, feed)} />
      {job.pending && <PendingPanel reason={job.pending} />}
      {failed && <FailurePanel failure={job.failure!} ended={job.state === "failed"} />}
      <Tabs tabs={TABS} chosen={search.tab ?? "curves"} label="Job views" onChoose={(tab) => change({ tab: tab === "curves" ? undefined : tab })}>
        <TabContent tab={search.tab ?? "curves"} {...{ job, feed, search, change, live }} />
      </Tabs>
    </>
  );
}

interface ContentProps {
  tab: Tab;
  job: Job;
  feed: MetricsFeed;
  search: JobSearch;
  change(part: Partial<JobSearch>): void;
  live: boolean;
}

function TabContent({ tab, job, feed, search, change, live }: ContentProps) {
  const navigate = useNavigate();
  switch (tab) {
    case "curves":
      return <Charts feed={feed} view={search} world={job.world_size} marks={marksOf(job)} waitingFor={live ? "The first points arrive with the first step." : "The job ended before its first step."} onView={(view: Partial<ChartView>) => change(view)} />;
    case "logs":
      return <LogPanel jobId={job.id} world={job.world_size} live={live} filter={{ rank: search.logRank, level: search.level, q: search.q, line: search.line }} onFilter={(filter) => change(logSearch(filter))} />;
    case "ranks":
      return (
        <div className="stack">
          <Panel title="Ranks" flush><RanksTable ranks={job.ranks ?? []} /></Panel>
          <Panel title="Generations" flush><GenerationsTable generations={job.generations ?? []} /></Panel>
        </div>
      );
    case "checkpoints":
      return <CheckpointsPanel jobId={job.id} jobName={job.name} onRestored={(jobId) => void navigate({ to: "/jobs/$jobId", params: { jobId }, search: {} })} />;
    case "timeline":
      return <Timeline jobId={job.id} />;
    case "spec":
      return <SpecView job={job} />;
  }
}

/** Where the curve was taken up again. */
function marksOf(job: Job) {
  return (job.generations ?? []).slice(1).map(({ generation, start_step }) => ({ step: start_step, label: `G${generation}` }));
}

/** The job's progress, as fresh as the stream. */
function useLiveProgress(job: Job, feed: MetricsFeed): JobProgress {
  const store = feed.query.data;
  useStoreVersion(store);
  const latest = store?.latest;
  if (!latest || latest.generation < job.generation || latest.step < job.progress.step) return job.progress;
  const { loss, tokens_per_second, samples_per_second } = latest.values;
  return {
    ...job.progress,
    step: latest.step,
    loss: loss ?? job.progress.loss,
    tokens_per_second: tokens_per_second ?? job.progress.tokens_per_second,
    samples_per_second: samples_per_second ?? job.progress.samples_per_second,
  };
}

/** The charts and the logs each have a rank: in the URL they need two names. */
function logSearch(filter: Partial<LogFilter>): Partial<JobSearch> {
  const { rank, ...rest } = filter;
  return "rank" in filter ? { ...rest, logRank: rank } : rest;
}
