import { useQuery } from "@tanstack/react-query";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Facts, type Fact } from "@/components/ui/Facts";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { bytes, count, percent, shortTime, si } from "@/lib/format";
import { isTerminal } from "@/lib/jobs";
import type { Job, Performance } from "@/lib/types";
import { performanceQuery } from "../api/performance";
import classes from "./Performance.module.css";

type PeakMemory = Performance["peak_memory"][number];

const COLUMNS: readonly Column<PeakMemory>[] = [
  { id: "rank", header: "Rank", cell: ({ rank }) => rank, value: ({ rank }) => rank, numeric: true, width: 90 },
  { id: "bytes", header: "Peak memory", cell: (row) => bytes(row.bytes), value: (row) => row.bytes, numeric: true },
];

/** Throughput, MFU with what it was computed from, what a step waits for, and memory. */
export function PerformancePanel({ job }: { job: Job }) {
  const query = useQuery(performanceQuery(job.id, !isTerminal(job.state)));
  return (
    <Panel title="Performance" flush>
      <PanelStates source={query} what="the performance" isEmpty={({ steps }) => steps === 0} empty={<EmptyState title="No step is measured yet">Figures are of the newest generation's steps; a script does not tell of its own.</EmptyState>}>
        {(performance) => <Figures performance={performance} />}
      </PanelStates>
    </Panel>
  );
}

function Figures({ performance }: { performance: Performance }) {
  return (
    <>
      <div className={classes.facts}><Facts facts={factsOf(performance)} size="sm" /></div>
      <p className={classes.basis}>{basisOf(performance)}</p>
      {performance.peak_memory.length > 0 && <DataTable label="Peak memory by rank" rows={performance.peak_memory} columns={COLUMNS} rowId={({ rank }) => String(rank)} />}
    </>
  );
}

function factsOf({ tokens_per_second: tokens, samples_per_second: samples, step_seconds: step, exposed_communication: exposed, mfu }: Performance): Fact[] {
  return [
    { name: "Tokens/s", value: si(tokens) },
    { name: "Samples/s", value: si(samples) },
    { name: "Step", value: shortTime(step) },
    { name: "Exposed communication", value: percent(exposed, 1), hint: "of a step on rank 0, measured" },
    { name: "MFU", value: mfu.value === null ? "n/a" : percent(mfu.value, 1), hint: mfu.peak_flops === null ? undefined : `of ${count(Math.round(mfu.peak_flops / 1e12))} TFLOP/s` },
  ];
}

/** What the figures are of, and MFU's formula, or why there is none. */
function basisOf({ steps, ranks, mfu }: Performance): string {
  const formula = mfu.formula ? ` The model's arithmetic: ${mfu.formula}.` : "";
  const peak = mfu.sources.length > 0 ? ` Peak: ${mfu.sources.join(", ")}.` : "";
  return `Of the newest ${count(steps)} steps on ${count(ranks)} ranks. MFU: ${mfu.text}.${formula}${peak}`;
}
