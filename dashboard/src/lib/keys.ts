/** Every query key of the application, so that invalidation has one list to look at. */
export const keys = {
  me: ["me"] as const,
  jobs: ["jobs"] as const,
  jobList: (filter: object) => ["jobs", "list", filter] as const,
  job: (id: string) => ["jobs", "one", id] as const,
  events: (jobId: string) => ["events", jobId] as const,
  metrics: (jobId: string, request: object) => ["metrics", jobId, request] as const,
  logs: (jobId: string, filter: object) => ["logs", jobId, filter] as const,
  checkpoints: (jobId: string) => ["checkpoints", jobId] as const,
  specSchema: ["spec-schema"] as const,
  plan: (spec: string) => ["plan", spec] as const,
  cluster: ["cluster"] as const,
  nodes: ["cluster", "nodes"] as const,
  summary: ["cluster", "summary"] as const,
};
