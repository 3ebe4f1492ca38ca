import { useQuery } from "@tanstack/react-query";
import { DataTable, type Column } from "@/components/ui/DataTable";
import { Facts, type Fact } from "@/components/ui/Facts";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { MISSING, bytes, percent, plural, shortTime, si, siWithUnit } from "@/lib/format";
import { isTerminal, soFar } from "@/lib/jobs";
import type { Job, Performance } from "@/lib/types";
import { performanceQuery } from "../api/performance";
import { PeakMemoryTable } from "./PeakMemoryTable";
import classes from "./Performance.module.css";

/** The traffic along an axis; without numbers where torch sends by itself. */
interface AxisTraffic {
  axis: string;
  rank: number | null;
  bytes_per_step: number | null;
  bytes_per_second: number | null;
}

const TRAFFIC: readonly Column<AxisTraffic>[] = [
  { id: "axis", header: "Mesh axis", cell: ({ axis }) => AXES[axis] ?? axis, width: 180 },
  {
    id: "step",
    header: "Bytes per step",
    cell: ({ bytes_per_step: size }) => (size === null ? "not counted" : bytes(Math.round(size))),
    value: (row) => row.bytes_per_step ?? -1,
    numeric: true,
  },
  {
    id: "rate",
    header: "Bytes/s",
    cell: ({ bytes_per_second: rate }) => (rate === null ? MISSING : `${bytes(Math.round(rate))}/s`),
    value: (row) => row.bytes_per_second ?? 0,
    numeric: true,
  },
  {
    id: "rank",
    header: "Busiest sender",
    cell: ({ rank }) => (rank === null ? MISSING : `rank ${rank}`),
    value: ({ rank }) => rank ?? -1,
    numeric: true,
    width: 130,
  },
];
const AXES: Readonly<Record<string, string>> = { world: "all ranks" };

function uncountedAlong(axis: string): AxisTraffic {
  return { axis, rank: null, bytes_per_step: null, bytes_per_second: null };
}

/** Throughput, MFU with what it was computed from, what a step waits for, and memory. */
export function PerformancePanel({ job }: { job: Job }) {
  const query = useQuery(performanceQuery(job.id, !isTerminal(job.state)));
  return (
    <Panel title="Performance" flush>
      <PanelStates
        source={query}
        what="the performance"
        isEmpty={({ steps }) => steps === 0}
        empty={
          <EmptyState title={soFar("No step is measured", !isTerminal(job.state))}>
            Figures cover the newest generation's steps. Scripts do not report step timings.
          </EmptyState>
        }
      >
        {(performance) => <Figures performance={performance} />}
      </PanelStates>
    </Panel>
  );
}

function Figures({ performance }: { performance: Performance }) {
  return (
    <>
      <div className={classes.facts}>
        <Facts facts={factsOf(performance)} size="sm" />
      </div>
      <p className={classes.basis}>{basisOf(performance)}</p>
      <div className={classes.tables}>
        {performance.traffic.length > 0 && (
          <DataTable
            label="Traffic by mesh axis"
            rows={[...performance.traffic, ...performance.uncounted.map(uncountedAlong)]}
            columns={TRAFFIC}
            rowId={({ axis }) => axis}
          />
        )}
        {performance.peak_memory.length > 0 && <PeakMemoryTable peaks={performance.peak_memory} />}
      </div>
    </>
  );
}

function factsOf({
  tokens_per_second: tokens,
  samples_per_second: samples,
  step_seconds: step,
  exposed_communication: exposed,
  overlapped_communication: overlapped,
  timed_rank: rank,
  bubble,
  mfu,
}: Performance): Fact[] {
  return [
    { name: "Tokens/s", value: si(tokens) },
    { name: "Samples/s", value: si(samples) },
    { name: "Step", value: shortTime(step) },
    {
      name: "Exposed communication",
      value: percent(exposed, 1),
      hint: exposed === null ? "not known: torch starts it, on GPUs" : `of a step on rank ${rank}, measured`,
    },
    ...(overlapped === null
      ? []
      : [
          {
            name: "Overlapped communication",
            value: percent(overlapped, 1),
            hint: `of a step, while rank ${rank} computed`,
          },
        ]),
    ...(bubble
      ? [
          {
            name: "Pipeline bubble",
            value: percent(bubble.measured, 1),
            hint: `${percent(bubble.formula, 1)} by the formula: ${bubble.text}`,
          },
        ]
      : []),
    { name: "Model FLOP/s", value: si(mfu.flops_per_second), hint: "forward and backward, on all ranks" },
    {
      name: "MFU",
      value: mfu.value === null ? "n/a" : percent(mfu.value, 1),
      hint: mfu.peak_flops === null ? undefined : `of ${siWithUnit(mfu.peak_flops, "FLOP/s")}`,
    },
  ];
}

/** What the figures are of, and MFU's formula, or why there is none. */
function basisOf({ steps, ranks, mfu }: Performance): string {
  const formula = mfu.formula ? ` Model FLOPs: ${mfu.formula}.` : "";
  const peak = mfu.sources.length > 0 ? ` Peak: ${mfu.sources.join(", ")}.` : "";
  return `Figures cover the newest ${plural(steps, "step")} on ${plural(ranks, "rank")}. MFU: ${mfu.text}.${formula}${peak}`;
}
