import { useQuery } from "@tanstack/react-query";
import { Facts } from "@/components/ui/Facts";
import { Panel, PanelStates } from "@/components/ui/Panel";
import { bytes, MISSING, percent, plural, si, siWithUnit } from "@/lib/format";
import type { ClusterSummary } from "@/lib/types";
import { summaryQuery } from "../api/cluster";

export function SummaryTiles() {
  const query = useQuery(summaryQuery);
  return (
    <Panel label="Cluster summary">
      <PanelStates source={query} what="the cluster summary" rows={2}>
        {(summary) => <Facts facts={factsOf(summary)} />}
      </PanelStates>
    </Panel>
  );
}

function factsOf(summary: ClusterSummary) {
  const total = (counts: ClusterSummary["nodes"]) => counts.reduce((sum, { count }) => sum + count, 0);
  const of = (counts: ClusterSummary["nodes"], state: string) => counts.find((one) => one.state === state)?.count ?? 0;
  return [
    {
      name: "Nodes",
      value: total(summary.nodes),
      hint: summary.nodes.map(({ state, count }) => `${count} ${state}`).join(", ") || "none yet",
    },
    {
      name: "Slots in use",
      value: `${summary.slots_used} / ${summary.slots_total}`,
      hint: `${summary.slots_free} free`,
    },
    { name: "Running jobs", value: of(summary.jobs, "running"), hint: `${of(summary.jobs, "queued")} queued` },
    {
      name: "GPUs",
      value: summary.gpus === 0 ? "no GPU" : summary.gpus,
      hint: summary.gpus === 0 ? plural(summary.slots_total, "CPU slot") : undefined,
    },
    ...(summary.gpus === 0 ? [] : cardsOf(summary)),
    {
      name: "CPU",
      value: summary.cpu_percent === null ? MISSING : percent(summary.cpu_percent / 100),
      hint: "mean of the nodes",
    },
    { name: "Memory", value: bytes(summary.memory_used_bytes), hint: `of ${bytes(summary.memory_total_bytes)}` },
    throughputOf(summary),
  ];
}

/** A job whose samples have no tokens counts in samples only: a cluster of those showed 0 tokens/s. */
function throughputOf({ tokens_per_second: tokens, samples_per_second: samples }: ClusterSummary) {
  if (tokens === 0) return { name: "Throughput", value: si(samples), hint: "samples/s, all jobs" };
  return { name: "Throughput", value: si(tokens), hint: `tokens/s, all jobs; ${si(samples)} samples/s` };
}

function cardsOf({
  gpu_percent: used,
  gpu_memory_used_bytes: memory,
  gpu_memory_total_bytes: total,
  gpu_power_watts: power,
}: ClusterSummary) {
  return [
    {
      name: "GPU utilization",
      value: used === null ? MISSING : percent(used / 100),
      hint: "mean of the cards that were read",
    },
    { name: "GPU memory", value: bytes(memory), hint: `of ${bytes(total)}` },
    {
      name: "GPU power",
      value: power === null ? "unknown" : siWithUnit(power, "W"),
      hint: "of the cards that tell theirs",
    },
  ];
}
