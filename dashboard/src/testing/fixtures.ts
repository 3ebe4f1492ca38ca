/** Answers of the coordinator, whole and typed; each test overrides what it is about. */
import type { Artifact, Checkpoint, ClusterSummary, Comparison, Curve, Event, Failure, Generation, Goodput, Incident, Job, JobMetrics, JobSummary, LogEntry, Me, Node, Performance, Plan, ProfileRequest, SampleAudit, Storage } from "@/lib/types";

const NOW = "2026-11-20T09:00:00Z";

export const me: Me = { user_id: "u1", name: "ada", role: "admin", members_may: "own", csrf_token: "csrf-1" };

export function jobSummary(part: Partial<JobSummary> = {}): JobSummary {
  return {
    id: "job1", name: "gpt-stdlib", project: "default", priority: 50, labels: {}, state: "running", desired: "run", end_reason: null, pending: null,
    progress: { step: 134, total_steps: 400, loss: 2.5, tokens_per_second: 12_400, samples_per_second: 97, mfu: null, eta_seconds: 75, last_checkpoint_step: 100, not_finite_step: null, updated_at: NOW },
    world_size: 2, generation: 1, restarts: 0, strategy: "ddp", model: "gpt", created_by: "ada", created_by_id: "u1", created_at: NOW, started_at: NOW, ended_at: null, unreadable: null, ...part,
  };
}

/** One whose spec can be read, unless `part` says otherwise. */
type ReadableJob = Job & { spec: Plan["spec"] };

export function job(part: Partial<Job> = {}): ReadableJob {
  const spec = { version: 1, name: "gpt-stdlib", fault_tolerance: { max_restarts: 3, recovery: "close_up" } } as unknown as Plan["spec"];
  return { ...jobSummary(), spec, stored_spec: null, revision: 7, failure: null, restored_from: null, choice: null, data_removal: null, actual_world_size: 2, ranks: [], generations: [], as_of_seq: 1, ...part } as ReadableJob;
}

export function curve(part: Partial<Curve> = {}): Curve {
  return { name: "loss", unit: "nats", rank: 0, generation: 1, bucket_steps: 1, steps: [1, 2], minimum: [5, 4], maximum: [5, 4], last: [5, 4], times: [0, 1], ...part } as Curve;
}

export function metrics(part: Partial<JobMetrics> = {}): JobMetrics {
  return { job_id: "job1", first_step: 1, last_step: 2, names: ["loss"], curves: [curve()], as_of_seq: 10, ...part };
}

export function logLine(seq: number, part: Partial<LogEntry> = {}): LogEntry {
  return { seq, rank: 0, generation: 1, time: NOW, level: "info", text: `line ${seq}`, ...part };
}

export function failure(part: Partial<Failure> = {}): Failure {
  return {
    kind: "signal", rank: 1, node_name: "node-b", generation: 1, message: "killed by SIGKILL", exception: "", traceback: "", step: 134, exit_code: null, signal: "SIGKILL",
    last_lines: [], victims: [], where: "", share: "victim", ...part,
  };
}

export function generation(part: Partial<Generation> = {}): Generation {
  return { generation: 1, world_size: 2, started_at: NOW, first_step_at: NOW, ended_at: null, end_reason: null, start_step: 0, restored_checkpoint_id: null, at_boundary: false, ...part };
}

/** A rank was killed and the other one closed up, in 0.35 s. */
export function incident(part: Partial<Incident> = {}): Incident {
  const phases = { detect: 0.02, decide: 0.03, fence: 0.1, rebuild: 0.05, transfer: 0.05, first_step: 0.1 };
  return {
    id: "i1", job_id: "job1", generation: 1, next_generation: 2, action: "closed_up", outcome: "recovered", cause: "rank_crashed", what: "rank 1 on node-b was killed by SIGKILL",
    why: "rank 1: killed by SIGKILL; rank 0 of 2 goes on", done: "rank 0 went on as generation 2 from step 134; no step was lost",
    culprit: failure({ victims: [failure({ kind: "peer_lost", rank: 0, node_name: "node-a", message: "lost the connection to another rank: reset", signal: null })] }),
    survivors: [0], old_size: 2, new_size: 1, step: 134, resumed_step: 134, steps_lost: 0, seconds_lost: 0.02, fault_at: NOW, first_step_at: NOW, over_at: NOW,
    outage_seconds: 0.35, age_seconds: 0.35,
    phases: Object.entries(phases).map(([name, seconds]) => ({ name: name as keyof typeof phases, seconds, under_way: false })),
    ...part,
  };
}

export function goodput(part: Partial<Goodput> = {}): Goodput {
  return {
    job_id: "job1", goodput: 0.98, text: "98.0% of 100.0 s went into 980 steps that count", since: NOW, until: NOW, wall_seconds: 100, paused_seconds: 12, queued_seconds: 0.01,
    useful_steps: 980, redone_steps: 3, incidents: [], resolution_steps: 1,
    parts: [
      { cause: "stepping", seconds: 98, share: 0.98, text: "steps that count" },
      { cause: "incident", seconds: 2, share: 0.02, text: "from a fault to the next generation's first step" },
    ],
    ...part,
  };
}

/** On two CPUs, which have no stated peak. */
export function performance(part: Partial<Performance> = {}): Performance {
  const mfu = { value: null, text: "n/a: nobody states the peak of a CPU", formula: "6N per sample, N=1,000", flops_per_sample: 6000, flops_per_second: 768_000, peak_flops: null, devices: ["cpu"], sources: [] };
  return {
    job_id: "job1", generation: 1, ranks: 2, steps: 50, step_seconds: 0.25, samples_per_second: 128, tokens_per_second: 16_400, parts: [], exposed_communication: 0.125, overlapped_communication: 0.034, traffic: [], bubble: null, mfu,
    peak_memory: [{ rank: 0, bytes: 400 * 1024 ** 2 }, { rank: 1, bytes: 500 * 1024 ** 2 }], ...part,
  };
}

export function artifact(part: Partial<Artifact> = {}): Artifact {
  return {
    id: "a1", job_id: "job1", generation: 1, rank: 0, kind: "trace", name: "trace-r1-steps-7-9.json.gz", first_step: 7, last_step: 9, bytes: 2 * 1024 ** 2, sha256: "00", state: "ready",
    error: null, request_id: "r1", created_at: NOW, ...part,
  };
}

export function profileRequest(part: Partial<ProfileRequest> = {}): ProfileRequest {
  return { id: "r1", job_id: "job1", generation: 1, steps: 3, ranks: [0], answered: [], state: "open", created_by: "ada", created_at: NOW, ...part };
}

export function audit(part: Partial<SampleAudit> = {}): SampleAudit {
  return {
    job_id: "job1", recorded: true, exactly_once: true, text: "every sample of steps 1 to 134 exactly once", findings: [], first_step: 1, last_step: 134, steps: 134, samples: 1072,
    duplicates: 0, missing: 0, discarded_steps: 0, epochs: [{ epoch: 0, samples: 5000, used: 1072, duplicates: 0, complete: false }],
    ranges: [{ generation: 1, first_step: 1, last_step: 134, first_sample: 0, samples: 1072, epoch: 0 }], next_cursor: null, ...part,
  };
}

export function comparison(part: Partial<Comparison> = {}): Comparison {
  const run = { id: "job1", name: "gpt-stdlib", state: "completed" as const, last_step: 400, world_sizes: [2], recoveries: 0, resizes: 0, pauses: 0 };
  return {
    jobs: [run, { ...run, id: "job2", name: "gpt-killed", world_sizes: [2, 1], recoveries: 1 }], verdict: "same", same_run: true,
    text: "same run, to the last bit: 400 of 400 steps equal, on 1 and 2 ranks, through 1 recovery", spec_differences: [], parameters: null,
    metrics: [{ name: "loss", compared: 400, equal: 400, first_difference: null, largest_relative_difference: 0, only_in_one: 0 }], ...part,
  };
}

export function checkpoint(part: Partial<Checkpoint> = {}): Checkpoint {
  return {
    id: "c1", job_id: "job1", step: 100, generation: 1, state: "committed", directory: "/c", bytes: 2048, manifest_sha256: "00", parameters_sha256: "ab", metrics: { eval_loss: 2.4 },
    stall_seconds: 0.012, write_seconds: 0.41, slowdown: 1.07, best: true, latest: true, pinned: false, deleted_next: false, used_by: [], damage: null, created_at: NOW, ...part,
  };
}

export function event(part: Partial<Event> = {}): Event {
  return { seq: 1, time: NOW, type: "job.submitted", actor: { kind: "user", id: "u1", name: "ada" }, cause: "submit", message: "Job submitted", job_id: "job1", node_id: null, generation: null, data: {}, ...part };
}

export function node(part: Partial<Node> = {}): Node {
  return {
    id: "n1", name: "node-a", state: "ready", device: "cpu", slots: [{ index: 0, job_id: null, job_name: null, rank: null }], gpus: [], gpu_note: "no GPU", host: null,
    address: "127.0.0.1", cpu_count: 2, memory_bytes: 1024, hostname: "a", platform: "linux", versions: {}, labels: {}, clock_skew_seconds: 0, heartbeat_age_seconds: 1,
    backlog_records: 0, drain_blocked_by: [], joined_at: NOW, revision: 1, ...part,
  };
}

export const clusterSummary: ClusterSummary = {
  nodes: [{ state: "ready", count: 1 }], jobs: [{ state: "running", count: 1 }], slots_total: 2, slots_used: 2, slots_free: 0, gpus: 0, cpu_percent: 50,
  memory_used_bytes: 1024, memory_total_bytes: 2048, tokens_per_second: 12_400, updated_at: NOW,
};

export function plan(part: Partial<Plan> = {}): Plan {
  return {
    spec: job().spec, plan_hash: "hash-1", world_size: 2, strategy: "ddp", global_batch_size: 32, micro_batch_size: 4, micro_batches: 8, gradient_accumulation_steps: 4, reproducible: true, parameter_count: 1_000_000, stages: [],
    memory_per_rank: null, choice: null, placement: [{ rank: 0, node_id: "n1", node_name: "node-a", slot: 0, place: { replicate: 0 } }], pending: null, warnings: [], ...part,
  };
}

export function planChoice(): NonNullable<Plan["choice"]> {
  const option = (name: string, memory_bytes: number, why: string) => ({ name, axes: name, activation_checkpointing: "none", micro_batch_size: 4, memory_bytes, step_seconds: 0.041, why });
  return {
    asked: ["parallelism.strategy: auto"], why: "Shard 2: a rank needs 2.0 KiB. Nothing else fits.", assumed: "assumed: 1 GB/s", budget_bytes: 3072,
    chosen: option("shard 2", 2048, ""), rejected: [option("replicate 2", 4096, "needs 4.0 KiB, 1.0 KiB more than there is")], not_told: 7,
  };
}

export function page<Item>(items: Item[], next_cursor: string | null = null) {
  return { items, next_cursor };
}

export function storage(part: Partial<Storage> = {}): Storage {
  return {
    kinds: [{ kind: "points", rows: 1_200, bytes: 400_000 }, { kind: "curves", rows: 300, bytes: 36_000 }, { kind: "lines", rows: 80, bytes: 16_000 }, { kind: "traces", rows: 0, bytes: 0 }],
    stored_bytes: 452_000, limit_bytes: 20_000_000_000, database_bytes: 700_000, free_in_database_bytes: 4_096, shrinks: true, hint: null,
    disk: { free_bytes: 50 * 1024 ** 3, total_bytes: 100 * 1024 ** 3, low_bytes: 2 * 1024 ** 3, low: false },
    policy: ["Raw points are kept for 30 days (PACELINE_KEEP_POINTS_DAYS)."],
    largest_jobs: [{ job_id: "job1", name: "gpt-stdlib", state: "running", bytes: 300_000, ended: false }, { job_id: "job2", name: "gpt-old", state: "completed", bytes: 152_000, ended: true }],
    ...part,
  };
}
