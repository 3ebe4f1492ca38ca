import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { IconArrowsDiff, IconCopyPlus, IconVersions } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Facts, type Fact } from "@/components/ui/Facts";
import { PageHeader } from "@/components/ui/PageHeader";
import { ProgressBar } from "@/components/ui/ProgressBar";
import { StateBadge } from "@/components/ui/StateBadge";
import { age, bytes, count, dateTime, duration, measured, MISSING, plural, si, title } from "@/lib/format";
import { fileName, isTerminal, percentDone, progressTone, shareOfBar, smallWorld } from "@/lib/jobs";
import { serverNow } from "@/lib/serverTime";
import type { Job, JobProgress } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { pairsOf } from "../labels";
import { EditJob } from "./EditJob";
import { JobActions } from "./JobActions";
import classes from "./Jobs.module.css";

interface Props {
  job: Job;
  progress: JobProgress;
  /** When the job was read, on the browser's clock: its times are counted on from then. */
  readAt: number;
  notices?: ReactNode;
}

export function JobHeader({ job, progress, readAt, notices }: Props) {
  const now = useServerNow();
  const share = shareOfBar({ state: job.state, progress });
  const steps = job.spec?.script == null || progress.step > 0;
  return (
    <>
      <PageHeader
        title={job.name}
        tabPrefix={tabPrefix(job, progress)}
        before={
          <Link to="/jobs" className="back">
            Jobs
          </Link>
        }
        after={<StatusLine job={job} />}
        subtitle={
          <>
            {job.project} · submitted {dateTime(job.created_at)} by {job.created_by} ·{" "}
            <span className="mono">{job.id}</span> <EditJob job={job} />
            <Filing job={job} />
            {job.experiment && <TrialOf experiment={job.experiment} />}
          </>
        }
        actions={
          <>
            {isTerminal(job.state) && <AgainLink job={job} />}
            <CompareLink jobId={job.id} />
            <VaryLink jobId={job.id} />
            <JobActions job={job} />
          </>
        }
      />
      {notices}
      <div className={classes.strip}>
        <Facts
          facts={[
            ...(steps ? trainingFacts(job, progress) : []),
            ...runFacts(job, progress, now, serverNow(readAt)),
            ...savedFacts(job, progress, now),
          ]}
        />
        {steps && <ProgressBar share={share} label="Job progress" tone={progressTone(job.state)} />}
      </div>
    </>
  );
}

/** How far a running job has come, where that is known; else its state. */
function tabPrefix({ state }: Job, progress: JobProgress): string {
  return (state === "running" && percentDone(progress)) || title(state);
}

/** Labels and notes, where there are any. */
function Filing({ job: { labels, notes } }: { job: Job }) {
  const pairs = pairsOf(labels);
  return (
    <>
      {pairs.length > 0 && <div>{pairs.join(", ")}</div>}
      {notes && <div className={classes.notes}>{notes}</div>}
    </>
  );
}

function TrialOf({ experiment: { id, name, trial } }: { experiment: NonNullable<Job["experiment"]> }) {
  return (
    <div>
      Trial {trial} of experiment{" "}
      <Link to="/experiments/$experimentId" params={{ experimentId: id }}>
        {name}
      </Link>
    </div>
  );
}

/** What is done next after a failure, and may be after any other end. */
function AgainLink({ job }: { job: Job }) {
  return (
    <Button
      component={Link}
      to="/jobs/new"
      search={{ from: job.id } as never}
      variant={job.state === "failed" ? "filled" : "default"}
      leftSection={<IconCopyPlus size={14} />}
    >
      Edit and resubmit
    </Button>
  );
}

function CompareLink({ jobId }: { jobId: string }) {
  return (
    <Button
      component={Link}
      to="/compare"
      search={{ jobs: [jobId] } as never}
      variant="default"
      leftSection={<IconArrowsDiff size={14} />}
    >
      Compare with…
    </Button>
  );
}

function VaryLink({ jobId }: { jobId: string }) {
  return (
    <Button
      component={Link}
      to="/experiments/new"
      search={{ from: jobId } as never}
      variant="default"
      leftSection={<IconVersions size={14} />}
    >
      Vary this
    </Button>
  );
}

function StatusLine({ job }: { job: Job }) {
  const ended = job.end_reason && job.end_reason !== job.state ? job.end_reason.replaceAll("_", " ") : null;
  const wanted =
    !isTerminal(job.state) && job.desired !== "run" && job.state !== "paused" ? `${job.desired} requested` : null;
  const small = smallWorld(job);
  return (
    <>
      <StateBadge state={job.state} />
      {job.archived_at && <StateBadge state="archived">archived</StateBadge>}
      {small && <StateBadge state="small" tone="warn">{`runs with ${small} ranks`}</StateBadge>}
      {(wanted ?? ended) && <span className="muted">{wanted ?? ended}</span>}
    </>
  );
}

function since(steps: number): string {
  return steps > 0 ? `${plural(steps, "step")} ago` : "up to date";
}

function trainingFacts(job: Job, progress: JobProgress): Fact[] {
  const rate = progress.tokens_per_second ?? progress.samples_per_second;
  const untold = job.state === "paused" || (job.spec?.script != null && rate == null);
  return [
    {
      name: "Step",
      value: count(progress.step),
      hint: progress.total_steps ? `of ${count(progress.total_steps)} (${percentDone(progress)})` : undefined,
    },
    { name: "Loss", value: measured(progress.loss) },
    ...(untold ? [] : [{ name: "Throughput", value: si(rate), hint: rateOf(progress) }]),
  ];
}

/** Its unit, and of how many steps it is: a single one jumps. */
function rateOf({ tokens_per_second: tokens, samples_per_second: samples }: JobProgress): string | undefined {
  const unit = tokens != null ? "tokens/s" : samples != null ? "samples/s" : null;
  return unit ? `${unit}, last 50 steps` : undefined;
}

function runFacts(job: Job, progress: JobProgress, now: number, readAt: number): Fact[] {
  const elapsed = Math.max(0, now - readAt) / 1000;
  return [
    timeFact(job, progress, now, elapsed),
    ...timeLeftFacts(job, elapsed),
    {
      name: "Ranks",
      value: smallWorld(job) ?? job.actual_world_size ?? job.world_size,
      hint: [job.strategy, `generation ${job.generation}`, sparesOf(job)].filter(Boolean).join(", "),
    },
    { name: "Restarts", value: job.restarts, hint: `of ${job.spec?.fault_tolerance?.max_restarts ?? MISSING} allowed` },
  ];
}

/** Of its time limit, which goes by only while it holds slots. */
function timeLeftFacts(
  { time_limit_seconds: limit, time_left_seconds: left, time_limit_at: until }: Job,
  elapsed: number,
): Fact[] {
  if (left == null) return [];
  const seconds = until ? Math.max(0, left - elapsed) : left;
  return [{ name: "Time left", value: duration(seconds), hint: `of ${duration(limit)}` }];
}

/** Ranks that wait for a place: spares, or such as are to join. */
function sparesOf({ ranks }: Job): string {
  const parked = (ranks ?? []).filter((rank) => rank.parked).length;
  return parked === 0 ? "" : `${parked} parked`;
}

/** What is left, where that is known; else how long it has run. */
function timeFact(job: Job, progress: JobProgress, now: number, elapsed: number): Fact {
  const ran = job.started_at ? duration(job.ran_seconds + (job.state === "running" ? elapsed : 0)) : MISSING;
  if (isTerminal(job.state)) {
    const ended = job.ended_at ? `ended ${age(now - Date.parse(job.ended_at))} ago` : undefined;
    return { name: "Duration", value: ran, hint: ended };
  }
  if (job.state === "paused") return { name: "Ran for", value: ran, hint: "before it was paused" };
  if (job.spec?.script) return { name: "Duration", value: ran };
  const hint = job.started_at ? `running for ${ran}` : undefined;
  return { name: "ETA", value: duration(progress.eta_seconds), hint };
}

/** Of a script the newest file that looks like a checkpoint, where one was seen: it saves by itself. */
function savedFacts(
  job: Job,
  { last_checkpoint_step: saved, saved_file: file, step }: JobProgress,
  now: number,
): Fact[] {
  if (job.spec?.script == null)
    return [
      {
        name: "Last checkpoint",
        value: saved == null ? "none" : count(saved),
        hint: saved == null ? undefined : since(step - saved),
      },
    ];
  if (!file) return [];
  const named = file.step == null ? "" : `step ${count(file.step)} by its name, `;
  return [
    {
      name: "Last saved",
      value: <span title={file.path}>{fileName(file.path)}</span>,
      hint: `${named}${bytes(file.bytes)}, ${age(now - Date.parse(file.time))} ago`,
    },
  ];
}
