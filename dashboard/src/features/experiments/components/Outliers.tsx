import { Link } from "@tanstack/react-router";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel } from "@/components/ui/Panel";
import { measured, MISSING } from "@/lib/format";
import type { Analysis, Outlier, Trial } from "@/lib/types";
import { figureNamed, titleOf } from "../figures";
import { canTellOutliers } from "../outliers";

interface Props {
  analysis: Analysis;
  trials: readonly Trial[];
  metric: string;
}

/** Trials that are far from the other repeats of their configuration, each with its job. */
export function Outliers({ analysis, trials, metric }: Props) {
  const { outliers, configurations } = analysis;
  return (
    <Panel title="Outlying trials" flush>
      {outliers.length > 0 ? (
        <DataTable
          label="Outlying trials"
          rows={outliers}
          columns={columnsOf(trials, metric)}
          rowId={({ trial, figure }) => `${trial}/${figure}`}
        />
      ) : canTellOutliers(configurations) ? (
        <EmptyState title="None">No trial is far from the median of its repeats.</EmptyState>
      ) : (
        <EmptyState title="Not looked for yet">
          What is usual is told by three repeats of two configurations, or by five of one.
        </EmptyState>
      )}
    </Panel>
  );
}

function columnsOf(trials: readonly Trial[], metric: string): Column<Outlier>[] {
  return [
    { id: "trial", header: "Trial", cell: ({ trial }) => trial, value: ({ trial }) => trial, numeric: true, width: 60 },
    { id: "job", header: "Job", cell: (one) => <JobOf outlier={one} trials={trials} /> },
    {
      id: "value",
      header: "Measured",
      cell: ({ figure, value }) => write(figure, value),
      numeric: true,
    },
    {
      id: "median",
      header: "Median",
      cell: ({ figure, median }) => write(figure, median),
      numeric: true,
    },
    { id: "figure", header: "Of", cell: ({ figure }) => titled(figure, metric), value: ({ figure }) => figure },
    { id: "text", header: "In words", prose: true, cell: ({ text }) => text },
  ];
}

function titled(figure: string, metric: string): string {
  const known = figureNamed(figure);
  return known ? titleOf(known, metric) : figure;
}

function write(figure: string, value: number): string {
  return (figureNamed(figure)?.write ?? measured)(value);
}

function JobOf({ outlier: { trial: index, job_id: jobId }, trials }: { outlier: Outlier; trials: readonly Trial[] }) {
  if (jobId === null) return MISSING;
  return (
    <Link to="/jobs/$jobId" params={{ jobId }}>
      {trials.find((trial) => trial.index === index)?.job?.name ?? jobId}
    </Link>
  );
}
