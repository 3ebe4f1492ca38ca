import { vi } from "vitest";
import {
  audit,
  clusterSummary,
  event,
  experiment,
  experimentAnalysis,
  experimentPlan,
  goodput,
  job,
  jobGradients,
  jobSummary,
  jobUsage,
  logLine,
  me,
  metrics,
  node,
  nodeMetrics,
  page,
  performance,
  plan,
  storage,
  trial,
} from "./fixtures";
import { experimentSchema, specSchema } from "./specSchema";

export interface Seen {
  method: string;
  path: string;
  url: URL;
  headers: Headers;
  body: unknown;
}

type Reply = { status?: number; body?: unknown; headers?: Record<string, string> };
export type Handler = (request: Seen) => Reply | Promise<Reply>;
export type Routes = Record<string, Handler>;

export function ok(body: unknown, status = 200): Reply {
  return { status, body };
}

export function problem(status: number, code: string, detail: string, errors: unknown[] = []): Reply {
  return {
    status,
    body: { type: "about:blank", title: code, status, detail, instance: "/", code, errors, request_id: "req-1" },
  };
}

export const never = new Promise<never>(() => {});

const HEALTHY: Routes = {
  "GET /api/v1/auth/me": () => ok(me),
  "GET /api/v1/auth/ways": () => ok({ oidc: null }),
  "GET /api/v1/training/jobs": () => ok(page([jobSummary()])),
  "GET /api/v1/training/job-facets": () =>
    ok({ projects: ["text", "vision"], users: ["ada", "bob"], models: ["gpt"], labels: { team: ["nlp"] } }),
  "GET /api/v1/training/saved-views": () => ok([]),
  "GET /api/v1/training/charts": () => ok([]),
  "GET /api/v1/training/jobs/job1": () => ok(job()),
  "GET /api/v1/training/jobs/job1/events": () => ok({ items: [event()], next_after: 1 }),
  "GET /api/v1/training/jobs/job1/logs": () =>
    ok({ items: [logLine(1)], next_after: 1, next_before: null, at_end: true, arriving: false, complete: false }),
  "GET /api/v1/training/jobs/job1/incidents": () => ok([]),
  "GET /api/v1/training/jobs/job1/goodput": () => ok(goodput()),
  "GET /api/v1/training/jobs/job1/performance": () => ok(performance()),
  "GET /api/v1/training/jobs/job1/usage": () => ok(jobUsage()),
  "GET /api/v1/cluster/nodes/n1/metrics": () => ok(nodeMetrics()),
  "GET /api/v1/training/jobs/job1/artifacts": () => ok(page([])),
  "GET /api/v1/training/jobs/job1/profile": () => ok(null),
  "GET /api/v1/training/jobs/job1/gradients": () => ok(jobGradients([])),
  "GET /api/v1/training/jobs/job1/samples": () => ok(audit()),
  "GET /api/v1/metrics/jobs/job1": () => ok(metrics()),
  "GET /api/v1/checkpoints/jobs/job1": () => ok(page([])),
  "GET /api/v1/training/spec-schema": () => ok(specSchema),
  "POST /api/v1/training/plan": () => ok(plan()),
  "GET /api/v1/cluster/nodes": () => ok(page([node()])),
  "GET /api/v1/cluster/launches": () => ok(page([])),
  "GET /api/v1/cluster/pools": () => ok(page([])),
  "GET /api/v1/metrics/cluster/summary": () => ok(clusterSummary),
  "GET /api/v1/cluster/idle-cards": () => ok({ cards: [] }),
  "GET /api/v1/cluster/storage": () => ok(storage()),
  "GET /api/v1/notifications/channels": () => ok([]),
  "GET /api/v1/notifications/rules": () => ok([]),
  "GET /api/v1/notifications/deliveries": () => ok(page([])),
  "GET /api/v1/experiments": () => ok(page([experiment()])),
  "GET /api/v1/experiments/exp1": () => ok(experiment()),
  "GET /api/v1/experiments/exp1/trials": () => ok(page([trial()])),
  "GET /api/v1/experiments/exp1/analysis": () => ok(experimentAnalysis()),
  "GET /api/v1/experiments/spec-schema": () => ok(experimentSchema),
  "POST /api/v1/experiments/plan": () => ok(experimentPlan()),
};

/** A coordinator that is well, but for `routes`; returns what it was asked. */
export function mockApi(routes: Routes = {}): Seen[] {
  const seen: Seen[] = [];
  const table = { ...HEALTHY, ...routes };
  vi.stubGlobal("fetch", async (request: Request) => {
    const url = new URL(request.url);
    const body =
      request.method === "GET"
        ? undefined
        : await request
            .clone()
            .json()
            .catch(() => undefined);
    const asked: Seen = { method: request.method, path: url.pathname, url, headers: request.headers, body };
    seen.push(asked);
    const reply = await (table[`${request.method} ${url.pathname}`]?.(asked) ??
      problem(404, "not_found", `no ${url.pathname}`));
    const { status = 200, body: answer, headers } = reply;
    const type = status >= 400 ? "application/problem+json" : "application/json";
    return new Response(answer === undefined ? null : JSON.stringify(answer), {
      status,
      headers: { "Content-Type": type, ...headers },
    });
  });
  return seen;
}

export function unreachable(): Handler {
  return () => Promise.reject(new TypeError("Failed to fetch"));
}
