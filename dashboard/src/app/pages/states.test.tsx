import { act, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { keys } from "@/lib/keys";
import { audit, goodput, incident, job, metrics, node, page } from "@/testing/fixtures";
import { mockApi, never, ok, problem, type Handler } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

interface Case {
  address: string;
  panel: string;
  route: string;
  what: string;
  data: Handler;
  shown: RegExp;
  nothing: Handler;
  empty: RegExp;
  key: readonly unknown[];
}

const noEvents = () => ok({ items: [], next_after: 0 });
const END = { next_before: null, at_end: true, arriving: false, complete: false };
const noLogs = () => ok({ items: [], next_after: 0, ...END });

const CASES: Case[] = [
  {
    address: "/jobs",
    panel: "Jobs",
    route: "GET /api/v1/training/jobs",
    what: "the jobs",
    shown: /gpt-stdlib/,
    empty: /No jobs yet/,
    key: keys.jobs,
    data: () => ok(page([job()])),
    nothing: () => ok(page([])),
  },
  {
    address: "/jobs/job1?tab=checkpoints",
    panel: "Checkpoints",
    route: "GET /api/v1/checkpoints/jobs/job1",
    what: "the checkpoints",
    shown: /eval_loss 2.4/,
    empty: /No checkpoint yet/,
    key: keys.checkpoints("job1"),
    nothing: () => ok(page([])),
    data: () =>
      ok(
        page([
          {
            id: "c",
            job_id: "job1",
            step: 1,
            generation: 1,
            state: "committed",
            directory: "/",
            bytes: 1,
            manifest_sha256: "",
            metrics: { eval_loss: 2.4 },
            best: false,
            latest: true,
            pinned: false,
            deleted_next: false,
            used_by: [],
            created_at: "2026-11-20T09:00:00Z",
          },
        ]),
      ),
  },
  {
    address: "/jobs/job1?tab=timeline",
    panel: "Timeline",
    route: "GET /api/v1/training/jobs/job1/events",
    what: "the timeline",
    shown: /Job submitted/,
    empty: /Nothing has happened yet/,
    key: keys.events("job1"),
    data: () =>
      ok({
        items: [
          {
            seq: 1,
            time: "2026-11-20T09:00:00Z",
            type: "job.submitted",
            actor: { kind: "user", id: "u", name: "ada" },
            cause: "",
            message: "Job submitted",
            data: {},
          },
        ],
        next_after: 1,
      }),
    nothing: noEvents,
  },
  {
    address: "/jobs/job1?tab=logs",
    panel: "Logs",
    route: "GET /api/v1/training/jobs/job1/logs",
    what: "the logs",
    shown: /./,
    empty: /No output yet/,
    key: ["logs"],
    data: () =>
      ok({
        items: [{ seq: 1, rank: 0, generation: 1, time: "2026-11-20T09:00:00Z", level: "info", text: "hello" }],
        next_after: 1,
        ...END,
      }),
    nothing: noLogs,
  },
  {
    address: "/jobs/job1?tab=incidents",
    panel: "Incidents",
    route: "GET /api/v1/training/jobs/job1/incidents",
    what: "the incidents",
    shown: /killed by SIGKILL/,
    empty: /No rank of this job has failed/,
    key: keys.incidents("job1"),
    data: () => ok([incident()]),
    nothing: () => ok([]),
  },
  {
    address: "/jobs/job1?tab=incidents",
    panel: "Goodput",
    route: "GET /api/v1/training/jobs/job1/goodput",
    what: "the goodput",
    shown: /98.0%/,
    empty: /No time to account for yet/,
    key: keys.goodput("job1"),
    data: () => ok(goodput()),
    nothing: () => ok(goodput({ parts: [] })),
  },
  {
    address: "/jobs/job1?tab=incidents",
    panel: "Samples",
    route: "GET /api/v1/training/jobs/job1/samples",
    what: "the audit of samples",
    shown: /exactly once/,
    empty: /No step to audit yet/,
    key: keys.samples("job1"),
    data: () => ok(audit()),
    nothing: () => ok(audit({ steps: 0, exactly_once: null, ranges: [] })),
  },
  {
    address: "/cluster",
    panel: "Nodes",
    route: "GET /api/v1/cluster/nodes",
    what: "the nodes",
    shown: /no GPU/,
    empty: /No nodes yet/,
    key: keys.nodes,
    data: () => ok(page([node({ slots: [], gpus: [], gpu_note: "no GPU" })])),
    nothing: () => ok(page([])),
  },
];

const panelOf = (name: string) => screen.findByRole("region", { name });

describe.each(CASES)("$panel at $address", ({ address, panel, route, what, data, shown, nothing, empty, key }) => {
  it("shows that it is loading, which is not empty", async () => {
    mockApi({ [route]: () => never });
    renderApp(address);
    const region = await panelOf(panel);
    expect(await within(region).findByRole("status", { name: `Loading ${what}` })).toBeVisible();
    expect(region).not.toHaveTextContent(empty);
  });

  it("says what to do when there is nothing", async () => {
    mockApi({ [route]: nothing });
    renderApp(address);
    expect(await within(await panelOf(panel)).findByText(empty)).toBeVisible();
  });

  it("shows the error's code and can be retried", async () => {
    let broken = true;
    mockApi({
      [route]: (request) => (broken ? problem(500, "database_locked", "The database is locked.") : data(request)),
    });
    renderApp(address);
    const region = await panelOf(panel);
    expect(await within(region).findByText(/database_locked/)).toBeVisible();
    broken = false;
    act(() => within(region).getByRole("button", { name: "Retry" }).click());
    await waitFor(() => expect(within(region).queryByText(/database_locked/)).toBeNull());
    await waitFor(() => expect(region).toHaveTextContent(shown)); // while it is fetched, there is neither
  });

  it("keeps showing old data when a refresh fails, and says that it is stale", async () => {
    let broken = false;
    mockApi({ [route]: (request) => (broken ? problem(503, "overloaded", "Too much.") : data(request)) });
    const { client } = renderApp(address);
    const region = await panelOf(panel);
    await waitFor(() => expect(within(region).queryByRole("status", { name: `Loading ${what}` })).toBeNull());
    broken = true;
    await act(() => client.invalidateQueries({ queryKey: [...key] }));
    expect(await within(region).findByText(/Could not refresh \(.*\)\. Showing data from .* ago\./)).toBeVisible();
    expect(region).toHaveTextContent(shown);
  });
});

describe("the curves", () => {
  it("say that they are empty, or broken", async () => {
    mockApi({ "GET /api/v1/metrics/jobs/job1": () => ok(metrics({ names: [], curves: [] })) });
    renderApp("/jobs/job1");
    expect(await screen.findByText("No curves yet")).toBeVisible();
  });

  it("show each reported metric with its summary sentence", async () => {
    mockApi();
    renderApp("/jobs/job1");
    expect(await screen.findByText("4 nats at step 2. Min 4 at step 2, max 5 at step 1.")).toBeVisible();
  });

  it("show the error's code", async () => {
    mockApi({ "GET /api/v1/metrics/jobs/job1": () => problem(500, "metrics_broken", "no") });
    renderApp("/jobs/job1");
    expect(await screen.findByText(/metrics_broken/)).toBeVisible();
  });
});
