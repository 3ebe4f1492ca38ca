/** Answers of the coordinator, whole and typed; each test overrides what it is about. */
import type { Checkpoint, ClusterSummary, Curve, Event, Job, JobMetrics, JobSummary, LogEntry, Me, Node, Plan } from "@/lib/types";

const NOW = "2026-11-20T09:00:00Z";

export const me: Me = { user_id: "u1", name: "ada", role: "admin", csrf_token: "csrf-1" };

export function jobSummary(part: Partial<JobSummary> = {}): JobSummary {
  return {
    id: "job1", name: "gpt-stdlib", project: "default", priority: 50, labels: {}, state: "running", desired: "run", end_reason: null, pending: null,
    progress: { step: 134, total_steps: 400, loss: 2.5, tokens_per_second: 12_400, samples_per_second: 97, eta_seconds: 75, last_checkpoint_step: 100, updated_at: NOW },
    world_size: 2, generation: 1, restarts: 0, strategy: "ddp", model: "gpt", created_by: "ada", created_at: NOW, started_at: NOW, ended_at: null, ...part,
  };
}

export function job(part: Partial<Job> = {}): Job {
  const spec = { version: 1, name: "gpt-stdlib", fault_tolerance: { max_restarts: 3, recovery: "restart" } } as unknown as Job["spec"];
  return { ...jobSummary(), spec, revision: 7, failure: null, restored_from: null, ranks: [], generations: [], as_of_seq: 1, ...part };
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

export function checkpoint(part: Partial<Checkpoint> = {}): Checkpoint {
  return {
    id: "c1", job_id: "job1", step: 100, generation: 1, state: "committed", directory: "/c", bytes: 2048, manifest_sha256: "00", metrics: { eval_loss: 2.4 },
    best: true, latest: true, pinned: false, deleted_next: false, used_by: [], damage: null, created_at: NOW, ...part,
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
    spec: job().spec, plan_hash: "hash-1", world_size: 2, strategy: "ddp", global_batch_size: 32, micro_batch_size: 4, micro_batches: 8, gradient_accumulation_steps: 4, reproducible: true, parameter_count: 1_000_000,
    memory_per_rank: null, placement: [{ rank: 0, node_id: "n1", node_name: "node-a", slot: 0 }], pending: null, warnings: [], ...part,
  };
}

export function page<Item>(items: Item[], next_cursor: string | null = null) {
  return { items, next_cursor };
}
