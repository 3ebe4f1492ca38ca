import { Link } from "@tanstack/react-router";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { EmptyState, Panel } from "@/components/ui/Panel";
import { measured, MISSING } from "@/lib/format";
import type { Analysis, Outlier, Trial } from "@/lib/types";
import { figureNamed, titleOf } from "../figures";
import { signedPercent } from "../fits";
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
          columns={columnsOf(analysis, trials, metric)}
          rowId={({ trial, figure }) => `${trial}/${figure}`}
        />
      ) : canTellOutliers(configurations) ? (
        <EmptyState title="None">
          No trial stands out from the other repeats of its configuration. By how much repeats differ stands in the
          findings.
        </EmptyState>
      ) : (
        <EmptyState title="Not looked for yet">
          What is usual is told by three repeats of two configurations, or by five of one.
        </EmptyState>
      )}
    </Panel>
  );
}

function columnsOf({ configurations }: Analysis, trials: readonly Trial[], metric: string): Column<Outlier>[] {
  const labelOf = (trial: number) => configurations.find((one) => one.trials.includes(trial))?.label ?? MISSING;
  return [
    { id: "trial", header: "Trial", cell: ({ trial }) => trial, value: ({ trial }) => trial, numeric: true, width: 60 },
    { id: "job", header: "Job", cell: (one) => <JobOf outlier={one} trials={trials} /> },
    {
      id: "deviation",
      header: "Off by",
      cell: (one) => <span title={one.text}>{signedPercent(deviationOf(one))}</span>,
      value: (one) => Math.abs(deviationOf(one)),
      numeric: true,
    },
    { id: "figure", header: "In", cell: ({ figure }) => titled(figure, metric), value: ({ figure }) => figure },
    { id: "value", header: "Measured", cell: ({ figure, value }) => write(figure, value), numeric: true },
    { id: "median", header: "Median", cell: ({ figure, median }) => write(figure, median), numeric: true },
    { id: "configuration", header: "Configuration", cell: ({ trial }) => labelOf(trial) },
  ];
}

/** From the median of its repeats. */
function deviationOf({ value, median }: Outlier): number {
  return value / median - 1;
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
