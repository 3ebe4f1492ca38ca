import { Link } from "@tanstack/react-router";
import { IconArrowsSplit2, IconEqual } from "@tabler/icons-react";
import { CopyAction } from "@/components/ui/CopyBox";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Panel } from "@/components/ui/Panel";
import { StateBadge } from "@/components/ui/StateBadge";
import { count, measured, MISSING, sentence } from "@/lib/format";
import type { ComparedJob, Comparison, MetricComparison, ParameterComparison, SpecDifference } from "@/lib/types";
import { bundlesOf, firstDifference, seen, shortHash, worldsOf } from "../verdict";
import { CodeChanges } from "./CodeChanges";
import classes from "./Compare.module.css";

/** Two runs: the verdict in words to quote, and the facts that it stands on. */
export function ComparisonPanel({ comparison }: { comparison: Comparison }) {
  const { jobs, text, metrics, parameters, spec_differences: differences } = comparison;
  const { tone, same } = seen(comparison);
  const bundles = bundlesOf(differences);
  const Icon = same ? IconEqual : IconArrowsSplit2;
  const both = jobs.map(({ name }) => name).join(" and ");
  return (
    <Panel title={both} actions={<CopyAction value={`${both}: ${text}`} label="Copy verdict" />} flush>
      <div className={classes.verdict} data-tone={tone}>
        <Icon size={20} aria-hidden />
        <blockquote className={classes.text}>{sentence(text)}.</blockquote>
      </div>
      <DataTable label="The runs" rows={jobs} columns={RUNS} rowId={({ id }) => id} />
      <Section title="Step by step">
        {metrics.length > 0 ? (
          <DataTable label="Metrics compared" rows={metrics} columns={METRICS} rowId={({ name }) => name} />
        ) : (
          <p className={classes.none}>The runs have no step in common yet.</p>
        )}
        <p className={classes.none}>{parametersOf(parameters)}</p>
      </Section>
      <Section title="Spec differences">
        {differences.length > 0 ? (
          <DataTable
            label="Spec differences"
            rows={differences}
            columns={specColumns(jobs)}
            rowId={({ path }) => path}
          />
        ) : (
          <p className={classes.none}>None.</p>
        )}
      </Section>
      {bundles && (
        <Section title="Code">
          <CodeChanges bundles={bundles} />
        </Section>
      )}
    </Panel>
  );
}

function Section({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <div className={classes.section}>
      <h3 className={classes.heading}>{title}</h3>
      {children}
    </div>
  );
}

const RUNS: readonly Column<ComparedJob>[] = [
  {
    id: "name",
    header: "Run",
    cell: ({ id, name }) => (
      <Link to="/jobs/$jobId" params={{ jobId: id }}>
        {name}
      </Link>
    ),
  },
  { id: "state", header: "State", cell: ({ state }) => <StateBadge state={state} /> },
  { id: "steps", header: "Last step", cell: ({ last_step: last }) => count(last), numeric: true },
  { id: "worlds", header: "Ranks", cell: ({ world_sizes: sizes }) => worldsOf(sizes), numeric: true },
  { id: "recoveries", header: "Recoveries", cell: ({ recoveries }) => recoveries, numeric: true },
  { id: "resizes", header: "Resizes", cell: ({ resizes }) => resizes, numeric: true },
  { id: "pauses", header: "Pauses", cell: ({ pauses }) => pauses, numeric: true },
];

const METRICS: readonly Column<MetricComparison>[] = [
  { id: "name", header: "Metric", cell: ({ name }) => name },
  {
    id: "equal",
    header: "Bit-identical",
    cell: ({ equal, compared }) => `${count(equal)} of ${count(compared)} steps`,
    numeric: true,
  },
  { id: "only", header: "Steps in one run only", cell: ({ only_in_one: only }) => count(only), numeric: true },
  { id: "first", header: "First difference", prose: true, cell: firstDifference },
  {
    id: "largest",
    header: "Largest relative difference",
    cell: ({ largest_relative_difference: largest }) => (largest === null ? MISSING : measured(largest)),
    numeric: true,
  },
];

function specColumns(jobs: readonly ComparedJob[]): readonly Column<SpecDifference>[] {
  return [
    { id: "path", header: "Field", cell: ({ path }) => <code>{path}</code>, value: ({ path }) => path },
    ...jobs.map(({ id, name }, index) => ({
      id,
      header: name,
      prose: true,
      cell: ({ values }: SpecDifference) => <code>{values[index]}</code>,
    })),
    {
      id: "matters",
      header: "Affects results",
      cell: ({ changes_numbers: changes }) => (changes ? "yes" : "no"),
    },
  ];
}

function parametersOf(parameters: ParameterComparison | null): string {
  if (parameters === null)
    return "Parameters: not compared. The runs have no checkpoints of the same step with hashed parameters.";
  const { step, hashes, equal } = parameters;
  if (equal) return `Parameters after step ${count(step)}: bit-identical (SHA-256 ${shortHash(hashes[0]!)}…).`;
  return `Parameters after step ${count(step)}: different (SHA-256 ${hashes.map((hash) => `${shortHash(hash)}…`).join(" and ")}).`;
}
