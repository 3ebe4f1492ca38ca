import { Link } from "@tanstack/react-router";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { StateBadge } from "@/components/ui/StateBadge";
import { count, measured, MISSING, si } from "@/lib/format";
import type { Trial } from "@/lib/types";
import { differing } from "../fields";
import { axisTitle, valueInWords, type Goal } from "../figures";
import classes from "./Experiments.module.css";

interface Props {
  trials: readonly Trial[];
  axes: readonly string[];
  metric: string;
  goal: Goal;
  best: number | null;
}

/** Every trial with its job, as it runs, in the order of the grid until a header is clicked. */
export function TrialsTable({ trials, axes, metric, goal, best }: Props) {
  return (
    <DataTable
      label="Trials"
      rows={trials}
      columns={columnsOf(trials, axes, metric, goal)}
      rowId={({ index }) => String(index)}
      rowProps={({ index, state }) => ({ "data-selected": index === best, "data-muted": state === "refused" })}
    />
  );
}

/** What is at work first, what never runs last. */
const STATES: readonly Trial["state"][] = [
  "running",
  "paused",
  "waiting",
  "failed",
  "completed",
  "pruned",
  "cancelled",
  "refused",
];

function columnsOf(trials: readonly Trial[], axes: readonly string[], metric: string, goal: Goal): Column<Trial>[] {
  const repeated = trials.some(({ repeat }) => repeat > 0);
  return [
    { id: "index", header: "Trial", cell: ({ index }) => index, value: ({ index }) => index, numeric: true, width: 60 },
    ...differing(trials, axes).map((path) => ({
      id: path,
      header: axisTitle(path),
      cell: ({ values }: Trial) => <span title={path}>{valueInWords(values[path])}</span>,
      value: ({ values }: Trial) => (typeof values[path] === "number" ? values[path] : valueInWords(values[path])),
    })),
    ...(repeated
      ? [
          {
            id: "repeat",
            header: "Repeat",
            cell: ({ repeat }: Trial) => repeat + 1,
            value: ({ repeat }: Trial) => repeat,
            numeric: true,
          },
        ]
      : []),
    {
      id: "state",
      header: "State",
      prose: true,
      cell: (trial) => <State trial={trial} />,
      value: ({ state }) => STATES.indexOf(state),
      sortFirst: "up",
    },
    { id: "step", header: "Step", cell: stepOf, value: ({ job }) => job?.step, numeric: true },
    {
      id: "speed",
      header: "Samples/s",
      cell: ({ job }) => si(job?.samples_per_second),
      value: ({ job }) => job?.samples_per_second,
      numeric: true,
    },
    {
      id: "metric",
      header: metric.charAt(0).toUpperCase() + metric.slice(1),
      cell: ({ metric: value }) => measured(value),
      value: ({ metric: value }) => value,
      sortFirst: goal === "minimize" ? "up" : "down",
      numeric: true,
    },
    { id: "job", header: "Job", cell: (trial) => <JobOf trial={trial} /> },
  ];
}

function stepOf({ job }: Trial): string {
  if (!job) return MISSING;
  return job.total_steps === null ? count(job.step) : `${count(job.step)} / ${count(job.total_steps)}`;
}

function State({ trial: { state, refusal, job, baseline, reused } }: { trial: Trial }) {
  const why = refusal ?? (state === "failed" ? job?.end_reason?.replaceAll("_", " ") : undefined);
  return (
    <>
      <StateBadge state={state} />
      {(baseline || reused) && (
        <span className={classes.beside}>
          {[baseline && "baseline", reused && "from an earlier run"].filter(Boolean).join(", ")}
        </span>
      )}
      {why && <div className={classes.why}>{why}</div>}
    </>
  );
}

function JobOf({ trial: { job } }: { trial: Trial }) {
  return job ? (
    <Link to="/jobs/$jobId" params={{ jobId: job.id }}>
      {job.name}
    </Link>
  ) : (
    MISSING
  );
}
