/** Which charts a job page shows, in which order. Names and units follow the coordinator's list of metrics. */
import type { Job } from "@/lib/types";
import { placing, type Axis, type Run } from "./axes";
import { lineOf, type Line } from "./lines";
import type { Unit } from "./units";

export interface ChartSpec {
  readonly id: string;
  readonly title: string;
  readonly names: readonly string[];
  readonly unit: Unit;
  /** Of single names, where they differ. */
  readonly units?: Readonly<Record<string, Unit>>;
}

/** The title of the chart of a step's parts. */
export const SPLIT_TITLE = "Step time";

export const STEP_PARTS = [
  "data_seconds",
  "forward_seconds",
  "backward_seconds",
  "communication_seconds",
  "optimizer_seconds",
  "other_seconds",
] as const;

const SENT = ["pipeline", "replicate", "shard", "context", "tensor", "world"].map((axis) => `${axis}_sent_bytes`);

const KNOWN: readonly ChartSpec[] = [
  { id: "loss", title: "Loss", names: ["loss", "eval_loss"], unit: "nats" },
  { id: "throughput", title: "Throughput", names: ["tokens_per_second"], unit: "tokens/s" },
  { id: "samples", title: "Throughput", names: ["samples_per_second"], unit: "samples/s" },
  { id: "mfu", title: "MFU", names: ["mfu"], unit: "share" },
  { id: "pipeline_bubble", title: "Pipeline bubble", names: ["pipeline_bubble"], unit: "share" },
  { id: "learning_rate", title: "Learning rate", names: ["learning_rate"], unit: "" },
  { id: "gradient_norm", title: "Gradient norm", names: ["gradient_norm"], unit: "" },
  { id: "loss_scale", title: "Loss scale", names: ["loss_scale"], unit: "" },
  { id: "skipped_updates", title: "Skipped updates", names: ["skipped_updates"], unit: "" },
  { id: "eval_accuracy", title: "Evaluation accuracy", names: ["eval_accuracy"], unit: "share" },
  { id: "sent", title: "Bytes sent", names: SENT, unit: "B" },
  { id: "memory", title: "Memory", names: ["memory_bytes", "peak_memory_bytes"], unit: "B" },
];
const ELSEWHERE = new Set<string>([
  ...STEP_PARTS,
  "step_seconds",
  "overlapped_communication_seconds",
  "dropped_records",
  "first_sample",
  "samples",
  "epoch_samples",
  "flops_per_sample",
]);

/** Every curve of Paceline's own that ranks report. */
export const CURVE_NAMES: readonly string[] = [
  "other_seconds",
  "overlapped_communication_seconds",
  ...KNOWN.flatMap(({ names }) => names),
];

/** The unit of a job's loss: known of Paceline's own models, whose loss is a cross-entropy, and of no other program. */
export function lossUnitOf(job: Job | undefined): Unit {
  return job?.spec?.model == null ? "" : "nats";
}

/** The charts for the metrics that a job has reported; a user's own metric gets a chart of its own. */
export function chartsFor(reported: readonly string[], lossUnit: Unit): ChartSpec[] {
  const has = new Set(reported);
  const known = KNOWN.filter((chart) => chart.names.some((name) => has.has(name))).filter(
    (chart) => chart.id !== "samples" || !has.has("tokens_per_second"),
  );
  const own = ownNames(reported);
  return [
    ...known.map((chart) => (chart.unit === "nats" ? { ...chart, unit: lossUnit } : chart)),
    ...own.map((name) => ({ id: name, title: name, names: [name], unit: "" as const })),
  ];
}

/** The metrics that a user's code named. */
export function ownNames(reported: readonly string[]): string[] {
  const covered = new Set(KNOWN.flatMap((chart) => chart.names));
  return reported.filter((name) => !covered.has(name) && !ELSEWHERE.has(name));
}

/** The unit of one metric; a user's own has none. */
export function unitOf(name: string, lossUnit: Unit): Unit {
  const known = KNOWN.find((chart) => chart.names.includes(name))?.unit ?? (name.endsWith("_seconds") ? "s" : "");
  return known === "nats" ? lossUnit : known;
}

/** What a chart draws of a run: a line for each generation of each metric. */
export function linesFor({ names, unit, units }: ChartSpec, run: Run, axis: Axis): Line[] {
  const place = placing(axis, run);
  return names.flatMap((name, color) =>
    run.series(name).map((series) => ({
      ...lineOf(series, { label: name, color, unit: units?.[name] ?? unit, place }),
      source: run.jobId === undefined ? undefined : { jobId: run.jobId, name, rank: series.rank },
    })),
  );
}
