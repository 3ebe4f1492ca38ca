import { useNavigate } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";
import { DocsLink } from "@/components/ui/DocsLink";
import { Panel } from "@/components/ui/Panel";
import { ArtifactsPanel } from "@/features/artifacts/components/ArtifactsPanel";
import { FilesPanel } from "@/features/artifacts/components/FilesPanel";
import { CheckpointsPanel } from "@/features/checkpoints/components/CheckpointsPanel";
import { Timeline } from "@/features/events/components/Timeline";
import { GoodputPanel } from "@/features/goodput/components/GoodputPanel";
import { GradientsPanel } from "@/features/gradients/components/GradientsPanel";
import { IncidentsPanel } from "@/features/incidents/components/IncidentsPanel";
import { GenerationsTable, RanksTable } from "@/features/jobs/components/RanksTable";
import { SpecView } from "@/features/jobs/components/SpecView";
import type { LogFilter } from "@/features/logs/api/logs";
import { LogPanel } from "@/features/logs/components/LogPanel";
import { MediaBoard } from "@/features/media/components/MediaBoard";
import { lossUnitOf } from "@/features/metrics/catalog";
import { CardPanel } from "@/features/metrics/components/CardPanel";
import { Charts } from "@/features/metrics/components/Charts";
import { HeatmapPanel } from "@/features/metrics/components/HeatmapPanel";
import { measuresOf, type Measure } from "@/features/metrics/measures";
import type { MetricsFeed } from "@/features/metrics/useMetricsFeed";
import { CommunicationPanel } from "@/features/performance/components/CommunicationPanel";
import { PerformancePanel } from "@/features/performance/components/PerformancePanel";
import { SamplesPanel } from "@/features/samples/components/SamplesPanel";
import { StacksPanel } from "@/features/stacks/components/StacksPanel";
import { TerminalPanel } from "@/features/terminal/components/TerminalPanel";
import { mostRanks, startOf } from "@/lib/jobs";
import type { Incident, Job } from "@/lib/types";
import type { JobSearch, Tab } from "../search";
import { marksOf } from "./jobMarks";

const PRINTED =
  "Read from printed lines, because the script reports no numbers through paceline.log or event files. Only steps that its log shows are here.";

interface ContentProps {
  tab: Tab;
  job: Job;
  incidents: readonly Incident[];
  feed: MetricsFeed;
  search: JobSearch;
  /** `replace: false`: the browser's "back" leads to what was shown before. */
  change(part: Partial<JobSearch>, options?: { replace?: boolean }): void;
  live: boolean;
}

/** What the chosen tab of a job shows. */
export function JobTabContent({ tab, job, incidents, feed, search, change, live }: ContentProps) {
  const navigate = useNavigate();
  const marks = useMemo(() => marksOf(job, incidents), [job, incidents]);
  switch (tab) {
    case "curves":
      return (
        <Charts
          feed={feed}
          view={search}
          world={mostRanks(job)}
          lossUnit={lossUnitOf(job)}
          {...{ project: job.project, jobId: job.id }}
          startedAt={startOf(job)}
          marking={{ marks, onOpen: ({ kind }) => change({ tab: kind === "incident" ? "incidents" : "ranks" }) }}
          byRank={{
            measures: measuresOfRanks(job, feed),
            onOpen: (measure) => change({ tab: "ranks", measure }, { replace: false }),
          }}
          live={live}
          waitingFor={waitingFor(job, live)}
          note={job.printed_curves ? PRINTED : undefined}
          onView={change}
        />
      );
    case "media":
      return <JobMediaBoard {...{ job, search, change, live }} />;
    case "performance":
      return <PerformanceTab {...{ job, search, change, live }} />;
    case "incidents":
      return (
        <div className="stack">
          <IncidentsPanel job={job} />
          <GoodputPanel job={job} />
          <SamplesPanel job={job} />
        </div>
      );
    case "logs":
      return <JobLog {...{ job, live, search, change }} />;
    case "ranks":
      return <RanksTab {...{ job, feed, search, change, live }} />;
    case "terminal":
      return <TerminalPanel job={job} />;
    case "checkpoints":
      return (
        <CheckpointsPanel
          job={job}
          onRestored={(jobId) => void navigate({ to: "/jobs/$jobId", params: { jobId }, search: {} })}
        />
      );
    case "artifacts":
      return (
        <FilesPanel
          job={job}
          folder={search.folder ?? ""}
          onFolder={(folder) => change({ folder: folder || undefined })}
        />
      );
    case "timeline":
      return <Timeline jobId={job.id} kind={search.events} onKind={(events) => change({ events })} />;
    case "spec":
      return <SpecView job={job} />;
  }
}

/** What the job's ranks can be compared by, as far as its curves are there; nothing where there was only ever one rank. */
function measuresOfRanks(job: Job, { query }: MetricsFeed): Measure[] {
  if (mostRanks(job) === 1 || !query.data) return [];
  const cards = (job.ranks ?? []).some(({ card }) => card != null);
  return measuresOf(query.data.names, { script: job.spec?.script != null, cards });
}

function RanksTab({ job, feed, search, change, live }: Omit<ContentProps, "tab" | "incidents">) {
  return (
    <div className="stack">
      {mostRanks(job) > 1 && feed.query.data && (
        <HeatmapPanel
          job={job}
          measures={measuresOfRanks(job, feed)}
          view={search}
          live={live}
          range={feed.query.data.range}
          onView={change}
          onZoom={(range) => change({ from: range?.from, to: range?.to })}
        />
      )}
      <Panel title="Ranks" flush>
        <RanksTable ranks={job.ranks ?? []} live={live} script={job.spec?.script != null} />
      </Panel>
      <StacksPanel job={job} />
      <Panel title="Generations" flush>
        <GenerationsTable generations={job.generations ?? []} live={live} />
      </Panel>
    </div>
  );
}

function JobLog({ job, live, search, change }: Pick<ContentProps, "job" | "live" | "search" | "change">) {
  return (
    <LogPanel
      jobId={job.id}
      world={mostRanks(job)}
      live={live}
      removal={job.data_removal}
      filter={logFilter(search)}
      onFilter={(filter) => change(logSearch(filter))}
    />
  );
}

const SOURCES_OF_CURVES =
  "Curves come from paceline.log(step, loss=...), from TensorBoard files, from the trainer_state.json and loggers of the usual libraries, and from printed lines such as: step 120 loss 2.31";

function waitingFor({ data_removal: removal, spec, state }: Job, live: boolean): ReactNode {
  if (removal) return "The points and curves of this job were deleted.";
  if (spec?.script != null)
    return (
      <>
        {state === "failed"
          ? "The script failed before a step of it was known."
          : `No step of the script ${live ? "is" : "was"} known.`}{" "}
        {SOURCES_OF_CURVES}.{" "}
        <DocsLink page="scripts.html#curves-from-frameworks-and-from-wandbs-form">Curves of a script</DocsLink>
      </>
    );
  return live ? "Curves appear after the first step." : "The job ended before its first step.";
}

type TabProps = Pick<ContentProps, "job" | "search" | "change" | "live">;

function PerformanceTab({ job, search, change, live }: TabProps) {
  return (
    <div className="stack">
      <PerformancePanel job={job} />
      {job.communication && <CommunicationPanel choice={job.communication} />}
      <CardPanel
        jobId={job.id}
        world={job.world_size}
        live={live}
        metric={search.card}
        onMetric={(card) => change({ card })}
      />
      <GradientsPanel job={job} step={search.gradientStep} onStep={(gradientStep) => change({ gradientStep })} />
      <ArtifactsPanel job={job} />
    </div>
  );
}

function JobMediaBoard({ job, search, change, live }: TabProps) {
  return (
    <MediaBoard
      runs={[{ id: job.id, name: job.name, live }]}
      step={search.mediaStep}
      range={rangeOf(search)}
      onStep={(mediaStep) => change({ mediaStep })}
      onAllSteps={() => change({ from: undefined, to: undefined })}
      gone={job.data_removal !== null}
    />
  );
}

function rangeOf({ from, to }: JobSearch) {
  return from !== undefined && to !== undefined && from < to ? { from, to } : null;
}

/** The charts and the logs each have a rank: in the URL they need two names. */
function logFilter({ logRank: rank, level, q, regex, context, line }: JobSearch): LogFilter {
  return { rank, level, q, regex, context, line };
}

function logSearch(filter: Partial<LogFilter>): Partial<JobSearch> {
  const { rank, ...rest } = filter;
  return "rank" in filter ? { ...rest, logRank: rank } : rest;
}
