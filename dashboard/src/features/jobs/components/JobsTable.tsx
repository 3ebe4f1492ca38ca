import { Link } from "@tanstack/react-router";
import { useSideways } from "@/components/ui/useSideways";
import { StateBadge } from "@/components/ui/StateBadge";
import type { JobSummary } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { COLUMNS, type ColumnId, type Sort } from "../view";
import { JOB_COLUMNS } from "./JobCells";
import classes from "./JobsTable.module.css";

interface Props {
  jobs: readonly JobSummary[];
  columns: readonly ColumnId[];
  sort: Sort;
  onSort(sort: Sort): void;
  picked: readonly string[];
  onPick(picked: string[]): void;
}

export function JobsTable({ jobs, columns, sort, onSort, picked, onPick }: Props) {
  const now = useServerNow(5_000);
  return (
    <div className={`${classes.scroller} sideways`} ref={useSideways()}>
      <table className={classes.table} aria-label="Jobs">
        <thead>
          <tr>
            <th scope="col" className={classes.pickCell}>
              <PickAll jobs={jobs} picked={picked} onPick={onPick} />
            </th>
            <Heading label="Job" by="name" sort={sort} onSort={onSort} />
            <th scope="col">State</th>
            {columns.map((id) => {
              const { numeric, wide, sort: by } = JOB_COLUMNS[id];
              return (
                <Heading
                  key={id}
                  label={COLUMNS[id]}
                  by={by}
                  numeric={numeric}
                  wide={wide}
                  className={id === "progress" ? classes.progressColumn : undefined}
                  sort={sort}
                  onSort={onSort}
                />
              );
            })}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <JobRow
              key={job.id}
              job={job}
              now={now}
              columns={columns}
              picked={picked.includes(job.id)}
              onPick={(on) => onPick(on ? [...picked, job.id] : picked.filter((id) => id !== job.id))}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Selects every job of this page. Those of other pages stay as they are. */
function PickAll({ jobs, picked, onPick }: Pick<Props, "jobs" | "picked" | "onPick">) {
  const ids = jobs.map(({ id }) => id);
  const here = ids.filter((id) => picked.includes(id)).length;
  const elsewhere = picked.filter((id) => !ids.includes(id));
  return (
    <input
      type="checkbox"
      className={classes.pick}
      aria-label="Select all jobs of this page"
      checked={here > 0 && here === ids.length}
      ref={(box) => {
        if (box) box.indeterminate = here > 0 && here < ids.length;
      }}
      onChange={(event) => onPick(event.currentTarget.checked ? [...elsewhere, ...ids] : elsewhere)}
    />
  );
}

interface RowProps {
  job: JobSummary;
  now: number;
  columns: readonly ColumnId[];
  picked: boolean;
  onPick(on: boolean): void;
}

function JobRow({ job, now, columns, picked, onPick }: RowProps) {
  return (
    <tr data-picked={picked || undefined}>
      <td className={classes.pickCell}>
        <input
          type="checkbox"
          className={classes.pick}
          aria-label={`Select ${job.name}`}
          checked={picked}
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
        <Remarks job={job} />
      </td>
      {columns.map((id) => {
        const { cell, numeric, wide } = JOB_COLUMNS[id];
        return (
          <td key={id} data-numeric={numeric || undefined} data-wide={wide}>
            {cell(job, now)}
          </td>
        );
      })}
    </tr>
  );
}

/** Why to look at the job. */
function Remarks({ job }: { job: JobSummary }) {
  return (
    <>
      {job.archived_at && <div className={classes.under}>archived</div>}
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
    </>
  );
}

interface HeadingProps {
  label: string;
  by?: "name" | "priority" | "created_at";
  numeric?: boolean;
  wide?: "1" | "2" | "3";
  className?: string;
  sort: Sort;
  onSort(sort: Sort): void;
}

function Heading({ label, by, numeric, wide, className, sort, onSort }: HeadingProps) {
  const shared = { scope: "col", "data-numeric": numeric || undefined, "data-wide": wide, className } as const;
  if (by === undefined) return <th {...shared}>{label}</th>;
  const direction = sort === by ? "ascending" : sort === `-${by}` ? "descending" : undefined;
  const next: Sort = direction === "descending" ? by : direction === "ascending" || by !== "name" ? `-${by}` : by;
  return (
    <th {...shared} aria-sort={direction}>
      <button type="button" className={classes.sort} onClick={() => onSort(next)}>
        {label}
        <span aria-hidden>{direction === "ascending" ? " ↑" : direction === "descending" ? " ↓" : ""}</span>
      </button>
    </th>
  );
}
