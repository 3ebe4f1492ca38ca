/** The cells of the list of jobs, by column. */
import type { ReactNode } from "react";
import { ProgressBar } from "@/components/ui/ProgressBar";
import { age, count, dateTime, duration, measured, MISSING, si } from "@/lib/format";
import { isTerminal, percentDone, progressTone, shareOfBar } from "@/lib/jobs";
import type { JobSummary } from "@/lib/types";
import { pairsOf } from "../labels";
import type { ColumnId, Sort } from "../view";
import classes from "./JobsTable.module.css";

export interface JobColumn {
  cell(job: JobSummary, now: number): ReactNode;
  numeric?: boolean;
  /** What the list is ordered by at a click on its heading. */
  sort?: Extract<Sort, "name" | "priority" | "created_at">;
  /** How soon a narrow window leaves it out: 1 goes first. */
  wide?: "1" | "2" | "3";
}

const loss = (name: "best_loss" | "eval_loss" | "best_eval_loss"): JobColumn => ({
  cell: ({ progress }) => measured(progress[name]),
  numeric: true,
  wide: "2",
});

export const JOB_COLUMNS: Record<ColumnId, JobColumn> = {
  progress: { cell: (job) => <ProgressCell job={job} /> },
  loss: {
    cell: (job) => <LossCell progress={job.progress} script={job.strategy === "script"} />,
    numeric: true,
    wide: "3",
  },
  best_loss: loss("best_loss"),
  eval_loss: loss("eval_loss"),
  best_eval_loss: loss("best_eval_loss"),
  throughput: { cell: throughput, numeric: true, wide: "3" },
  duration: { cell: (job) => (job.started_at ? duration(job.ran_seconds) : MISSING), numeric: true, wide: "2" },
  eta: {
    cell: (job) => (isTerminal(job.state) || job.state === "paused" ? MISSING : duration(job.progress.eta_seconds)),
    numeric: true,
    wide: "2",
  },
  ranks: { cell: (job) => job.last_world_size ?? job.world_size, numeric: true, wide: "1" },
  restarts: { cell: (job) => job.restarts, numeric: true, wide: "1" },
  user: { cell: (job) => job.created_by, wide: "2" },
  project: { cell: (job) => job.project, wide: "2" },
  model: { cell: (job) => job.model, wide: "2" },
  labels: { cell: (job) => <div className={classes.labels}>{pairsOf(job.labels).join(", ")}</div>, wide: "2" },
  priority: { cell: (job) => job.priority, numeric: true, sort: "priority", wide: "1" },
  created: {
    cell: (job, now) => <Ago time={job.created_at} now={now} />,
    numeric: true,
    sort: "created_at",
    wide: "3",
  },
  ended: {
    cell: (job, now) => (job.ended_at ? <Ago time={job.ended_at} now={now} /> : MISSING),
    numeric: true,
    wide: "2",
  },
};

function Ago({ time, now }: { time: string; now: number }) {
  return <span title={dateTime(time)}>{age(now - Date.parse(time))} ago</span>;
}

function ProgressCell({ job }: { job: JobSummary }) {
  const { progress, state } = job;
  const unknown = progress.step === 0 && !progress.total_steps;
  return (
    <div className={classes.progress}>
      <ProgressBar share={shareOfBar(job)} tone={progressTone(state)} label={`Progress of ${job.name}`} />
      <div className={classes.steps}>
        <span>
          {unknown
            ? MISSING
            : progress.total_steps
              ? `${count(progress.step)} / ${count(progress.total_steps)}`
              : `step ${count(progress.step)}`}
        </span>
        <span className={classes.share}>{percentDone(progress)}</span>
      </div>
    </div>
  );
}

/** NaN stands in place of the loss, which may look well again; what was held back, or is only a spike, stands below it. A script whose loss is
 * well again may have left out the update of that step. */
function LossCell({
  progress: { loss, not_finite_step: spoilt, bad_loss: bad },
  script,
}: {
  progress: JobSummary["progress"];
  script: boolean;
}) {
  if (spoilt != null && !(script && typeof loss === "number"))
    return (
      <span className={classes.bad} title={`The loss is not finite since step ${spoilt}`}>
        NaN
      </span>
    );
  return (
    <>
      {measured(loss)}
      {bad && (
        <div className={classes.under} title={`${bad.what}: ${bad.done}`}>
          {bad.kind === "spike" ? "spike" : "NaN"} at {count(bad.step)}
        </div>
      )}
    </>
  );
}

/** The last one of a job that has ended. One that is paused has none: it does not step now. */
function throughput({ progress, state }: JobSummary): string {
  if (state === "paused") return MISSING;
  if (progress.tokens_per_second != null) return `${si(progress.tokens_per_second)} tok/s`;
  if (progress.samples_per_second != null) return `${si(progress.samples_per_second)} smp/s`;
  return MISSING;
}
