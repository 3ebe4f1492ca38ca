import { Link } from "@tanstack/react-router";
import { ProgressBar } from "@/components/ui/ProgressBar";
import { StateBadge } from "@/components/ui/StateBadge";
import { age, count, duration, measured, MISSING, plural, si } from "@/lib/format";
import { isTerminal, percentDone, progressTone, shareOfBar } from "@/lib/jobs";
import type { JobSummary } from "@/lib/types";
import { useNow } from "@/lib/useNow";
import type { Sort } from "../api/jobs";
import classes from "./JobsTable.module.css";

interface Props {
  jobs: readonly JobSummary[];
  sort: Sort;
  onSort(sort: Sort): void;
  /** Jobs that are picked to be compared. */
  picked: readonly string[];
  mostPicked: number;
  onPick(picked: string[]): void;
}

export function JobsTable({ jobs, sort, onSort, picked, mostPicked, onPick }: Props) {
  const now = useNow(5_000);
  const heading = { sort, onSort };
  return (
    <div className={classes.scroller}>
      <table className={classes.table} aria-label="Jobs">
        <thead>
          <tr>
            <th scope="col" className={classes.pickCell}>
              <span className="visually-hidden">Select to compare</span>
            </th>
            <SortHeader name="name" label="Job" {...heading} />
            <th scope="col">State</th>
            <th scope="col" className={classes.progressColumn}>
              Progress
            </th>
            <th scope="col" data-numeric data-wide="3">
              Loss
            </th>
            <th scope="col" data-numeric data-wide="3">
              Throughput
            </th>
            <th scope="col" data-numeric data-wide="2">
              ETA
            </th>
            <th scope="col" data-numeric data-wide="1">
              Ranks
            </th>
            <SortHeader name="priority" label="Priority" wide="1" numeric {...heading} />
            <SortHeader name="created_at" label="Submitted" wide="3" numeric {...heading} />
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <JobRow
              key={job.id}
              job={job}
              now={now}
              picked={picked.includes(job.id)}
              full={picked.length >= mostPicked}
              onPick={(on) => onPick(on ? [...picked, job.id] : picked.filter((id) => id !== job.id))}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  job: JobSummary;
  now: number;
  picked: boolean;
  /** No other may be picked. */
  full: boolean;
  onPick(on: boolean): void;
}

function JobRow({ job, now, picked, full, onPick }: RowProps) {
  return (
    <tr data-picked={picked || undefined}>
      <td className={classes.pickCell}>
        <input
          type="checkbox"
          className={classes.pick}
          aria-label={`Select ${job.name} to compare`}
          checked={picked}
          disabled={full && !picked}
          onChange={(event) => onPick(event.currentTarget.checked)}
        />
      </td>
      <td className={classes.nameCell}>
        <Link to="/jobs/$jobId" params={{ jobId: job.id }} className={classes.name}>
          {job.name}
        </Link>
        <div className={classes.under}>{[...new Set([job.project, job.model, job.strategy])].join(" · ")}</div>
      </td>
      <td>
        <StateBadge state={job.state} />
        {job.unreadable && !job.pending && (
          <div className={classes.reason} title={job.unreadable}>
            The spec cannot be read
          </div>
        )}
        {job.pending && (
          <div className={classes.reason} title={job.pending.text}>
            {job.pending.text}
          </div>
        )}
        {job.hang && (
          <div className={classes.reason} title={job.hang.message}>
            Seems to hang
          </div>
        )}
        {(job.silent_nodes ?? []).map((node) => (
          <div key={node.node_id} className={classes.reason} title={node.message}>
            Node {node.node_name} is silent
          </div>
        ))}
        {job.state === "failed" && job.end_reason && (
          <div className={classes.under}>{job.end_reason.replaceAll("_", " ")}</div>
        )}
      </td>
      <td>
        <ProgressCell job={job} />
      </td>
      <td data-numeric data-wide="3">
        <LossCell progress={job.progress} script={job.strategy === "script"} />
      </td>
      <td data-numeric data-wide="3">
        {isIdle(job) ? MISSING : throughput(job)}
      </td>
      <td data-numeric data-wide="2">
        {isIdle(job) ? MISSING : duration(job.progress.eta_seconds)}
      </td>
      <td data-numeric data-wide="1">
        {job.last_world_size ?? job.world_size}
      </td>
      <td data-numeric data-wide="1">
        {job.priority}
      </td>
      <td data-numeric data-wide="3" title={job.created_at}>
        {age(now - Date.parse(job.created_at))} ago
      </td>
    </tr>
  );
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
              : plural(progress.step, "step")}
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

/** It does not step now, so it has no speed and no ETA. */
function isIdle({ state }: JobSummary): boolean {
  return isTerminal(state) || state === "paused";
}

function throughput({ progress }: JobSummary): string {
  if (progress.tokens_per_second != null) return `${si(progress.tokens_per_second)} tok/s`;
  if (progress.samples_per_second != null) return `${si(progress.samples_per_second)} smp/s`;
  return MISSING;
}

interface SortHeaderProps {
  name: "name" | "priority" | "created_at";
  label: string;
  numeric?: boolean;
  /** Of the columns that a narrow window leaves out, how soon: 1 goes first. */
  wide?: "1" | "3";
  sort: Sort;
  onSort(sort: Sort): void;
}

function SortHeader({ name, label, numeric, wide, sort, onSort }: SortHeaderProps) {
  const direction = sort === name ? "ascending" : sort === `-${name}` ? "descending" : undefined;
  const next: Sort =
    direction === "descending" ? name : direction === "ascending" ? `-${name}` : name === "name" ? name : `-${name}`;
  return (
    <th scope="col" aria-sort={direction} data-numeric={numeric || undefined} data-wide={wide}>
      <button type="button" className={classes.sort} onClick={() => onSort(next)}>
        {label}
        <span aria-hidden>{direction === "ascending" ? " ↑" : direction === "descending" ? " ↓" : ""}</span>
      </button>
    </th>
  );
}
