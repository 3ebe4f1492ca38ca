import { Checkbox } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Panel } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { MISSING } from "@/lib/format";
import type { Analysis, Configuration, Estimate, Trial } from "@/lib/types";
import { jobsOf } from "../experiments";
import { differing } from "../fields";
import {
  axisTitle,
  bestFirst,
  figuresOf,
  intervalOf,
  isMain,
  orderingOf,
  titleOf,
  valueInWords,
  type FigureSpec,
  type Goal,
} from "../figures";
import classes from "./Experiments.module.css";

interface Props {
  analysis: Analysis;
  trials: readonly Trial[];
  metric: string;
  goal: Goal;
}

const SHOWN_FIRST = 10;
/** Where most columns are beyond the edge: what the rows are ordered by comes first, and stays. */
const NARROW = "(max-width: 700px)";

/** Only what differs, and what came of it, best first. */
export function ConfigurationsTable({ analysis, trials, metric, goal }: Props) {
  const { configurations, axes, best } = analysis;
  const rows = useMemo(() => bestFirst(configurations, best, goal), [configurations, best, goal]);
  const [all, setAll] = useState(false);
  const narrow = useMediaQuery(NARROW);
  const figures = figuresOf(configurations).filter((figure) => all || isMain(figure));
  const first = narrow ? orderingOf(figures) : undefined;
  return (
    <Panel
      title="Configurations"
      actions={
        <>
          <span className="hint">medians, with 95% intervals</span>
          <Checkbox label="All figures" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} />
        </>
      }
      flush
    >
      <DataTable
        label="Configurations"
        rows={rows}
        first={SHOWN_FIRST}
        columns={[
          ...(first ? [{ ...figureColumn(first, metric), sticky: true }] : []),
          ...fieldColumns(configurations, axes),
          { id: "notes", header: "Notes", cell: (one) => <Notes one={one} best={best} /> },
          ...figures.filter((figure) => figure !== first).map((figure) => figureColumn(figure, metric)),
          { id: "jobs", header: "Jobs", cell: (one) => <Jobs one={one} trials={trials} /> },
        ]}
        rowId={({ index }) => String(index)}
        rowProps={({ index, refusal }) => ({ "data-selected": index === best, "data-muted": refusal !== null })}
      />
    </Panel>
  );
}

function fieldColumns(configurations: readonly Configuration[], axes: readonly string[]): Column<Configuration>[] {
  const paths = differing(configurations, axes);
  if (paths.length === 0)
    return [{ id: "label", header: "Configuration", cell: ({ label }) => label, value: ({ label }) => label }];
  return paths.map((path) => ({
    id: path,
    header: axisTitle(path),
    cell: ({ values }) => <span title={path}>{valueInWords(values[path])}</span>,
    value: ({ values }) => (typeof values[path] === "number" ? values[path] : valueInWords(values[path])),
    numeric: configurations.every(({ values }) => typeof values[path] === "number"),
  }));
}

function figureColumn(figure: FigureSpec, metric: string): Column<Configuration> {
  return {
    id: figure.name,
    header: titleOf(figure, metric),
    cell: (one) => <Measured estimate={one[figure.name]} figure={figure} />,
    value: (one) => one[figure.name]?.value,
    numeric: true,
  };
}

function Measured({ estimate, figure }: { estimate: Estimate | null; figure: FigureSpec }) {
  if (estimate === null) return MISSING;
  const interval = intervalOf(estimate, figure);
  return (
    <>
      {figure.write(estimate.value)} {interval && <span className={classes.interval}>{interval}</span>}
    </>
  );
}

function Notes({ one, best }: { one: Configuration; best: number | null }) {
  const { index, baseline, pareto, refusal, completed } = one;
  if (refusal !== null)
    return (
      <div className={classes.refusal} title={refusal}>
        <StateBadge state="refused" /> {refusal}
      </div>
    );
  return (
    <span className={classes.notes}>
      {index === best && (
        <StateBadge state="best" tone="active">
          recommended
        </StateBadge>
      )}
      {pareto && index !== best && (
        <StateBadge state="pareto" tone="good">
          Pareto front
        </StateBadge>
      )}
      {baseline && <StateBadge state="baseline">baseline</StateBadge>}
      {completed === 0 && <span className="muted">no result yet</span>}
    </span>
  );
}

function Jobs({ one, trials }: { one: Configuration; trials: readonly Trial[] }) {
  const jobs = jobsOf(one, trials);
  if (jobs.length === 0) return MISSING;
  return (
    <span className={classes.jobs}>
      {jobs.map(({ index, jobId }) => (
        <Link key={index} to="/jobs/$jobId" params={{ jobId }} aria-label={`Job of trial ${index}`}>
          {index}
        </Link>
      ))}
    </span>
  );
}
