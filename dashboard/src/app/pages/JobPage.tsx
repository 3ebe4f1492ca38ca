import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { ArtifactsPanel } from "@/features/artifacts/components/ArtifactsPanel";
import { CheckpointsPanel } from "@/features/checkpoints/components/CheckpointsPanel";
import { Timeline } from "@/features/events/components/Timeline";
import { GoodputPanel } from "@/features/goodput/components/GoodputPanel";
import { incidentsQuery } from "@/features/incidents/api/incidents";
import { IncidentNotice } from "@/features/incidents/components/IncidentNotice";
import { IncidentsPanel } from "@/features/incidents/components/IncidentsPanel";
import { faultBehind, headline, isOpen } from "@/features/incidents/incidents";
import { jobQuery } from "@/features/jobs/api/jobs";
import { NotFiniteNotice } from "@/features/jobs/components/NotFiniteNotice";
import { DataRemovedNotice } from "@/features/jobs/components/DataRemovedNotice";
import { FailurePanel } from "@/features/jobs/components/FailurePanel";
import { SmallWorldNotice } from "@/features/jobs/components/SmallWorldNotice";
import { UnreadableNotice } from "@/features/jobs/components/UnreadableNotice";
import { JobHeader } from "@/features/jobs/components/JobHeader";
import { PendingPanel } from "@/features/jobs/components/PendingPanel";
import { GenerationsTable, RanksTable } from "@/features/jobs/components/RanksTable";
import { SpecView } from "@/features/jobs/components/SpecView";
import type { LogFilter } from "@/features/logs/api/logs";
import { LogPanel } from "@/features/logs/components/LogPanel";
import { Charts, type ChartView } from "@/features/metrics/components/Charts";
import { useMetricsFeed, type MetricsFeed } from "@/features/metrics/useMetricsFeed";
import { useStoreVersion } from "@/features/metrics/useStoreVersion";
import { PerformancePanel } from "@/features/performance/components/PerformancePanel";
import { SamplesPanel } from "@/features/samples/components/SamplesPanel";
import { isTerminal, smallWorld } from "@/lib/jobs";
import type { Incident, Job, JobProgress } from "@/lib/types";
import { TABS, type JobSearch, type Tab } from "../search";
import { marksOf } from "./jobMarks";
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
  const ledger = useQuery(incidentsQuery(job.id));
  const incidents = ledger.data ?? NONE;
  return (
    <>
      <JobHeader job={job} progress={useLiveProgress(job, feed)} notices={<Notices job={job} incidents={incidents} readAt={ledger.dataUpdatedAt} />} />
      <Tabs tabs={TABS} chosen={search.tab ?? "curves"} label="Job views" counts={{ incidents: incidents.length }} onChoose={(tab) => change({ tab: tab === "curves" ? undefined : tab })}>
        <TabContent tab={search.tab ?? "curves"} {...{ job, incidents, feed, search, change, live }} />
      </Tabs>
    </>
  );
}

const NONE: readonly Incident[] = [];

function waitingFor({ data_removal: removal, spec }: Job, live: boolean): string {
  if (removal) return "Its points and curves were deleted.";
  if (spec?.script != null) return `The script ${live ? "has told" : "told"} of no step: paceline.log(step, loss=...) in it makes live curves.`;
  return live ? "The first points arrive with the first step." : "The job ended before its first step.";
}

/** What one must know before any number: why it ended, what it recovers from, why it waits. */
function Notices({ job, incidents, readAt }: { job: Job; incidents: readonly Incident[]; readAt: number }) {
  const ended = job.state === "failed";
  const underWay = incidents.find(isOpen);
  const failure = ended || (!isTerminal(job.state) && !underWay) ? job.failure : null;
  const last = incidents.at(-1);
  const fault = faultBehind(incidents, job);
  return (
    <>
      <DataRemovedNotice job={job} />
      <NotFiniteNotice job={job} />
      {failure && <FailurePanel failure={failure} ended={ended} outcome={last?.action === "gave_up" ? last.why : undefined} />}
      {underWay && <IncidentNotice incident={underWay} readAt={readAt} />}
      <UnreadableNotice job={job} />
      {!underWay && <SmallWorldNotice job={job} fault={fault && headline(fault)} />}
      {job.pending && smallWorld(job) === null && <PendingPanel reason={job.pending} />}
    </>
  );
}

interface ContentProps {
  tab: Tab;
  job: Job;
  incidents: readonly Incident[];
  feed: MetricsFeed;
  search: JobSearch;
  change(part: Partial<JobSearch>): void;
  live: boolean;
}

function TabContent({ tab, job, incidents, feed, search, change, live }: ContentProps) {
  const navigate = useNavigate();
  const marks = useMemo(() => marksOf(job, incidents), [job, incidents]);
  switch (tab) {
    case "curves":
      return <Charts feed={feed} view={search} world={job.world_size} marking={{ marks, onOpen: ({ kind }) => change({ tab: kind === "incident" ? "incidents" : "ranks" }) }} waitingFor={waitingFor(job, live)} onView={(view: Partial<ChartView>) => change(view)} />;
    case "performance":
      return (
        <div className="stack">
          <PerformancePanel job={job} />
          <ArtifactsPanel job={job} />
        </div>
      );
    case "incidents":
      return (
        <div className="stack">
          <IncidentsPanel job={job} />
          <GoodputPanel job={job} />
          <SamplesPanel job={job} />
        </div>
      );
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
      return <CheckpointsPanel job={job} onRestored={(jobId) => void navigate({ to: "/jobs/$jobId", params: { jobId }, search: {} })} />;
    case "timeline":
      return <Timeline jobId={job.id} />;
    case "spec":
      return <SpecView job={job} />;
  }
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
