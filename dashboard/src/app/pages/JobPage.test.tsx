import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { Job } from "@/lib/types";
import { FakeSocket } from "@/testing/fakeSocket";
import { job, metrics, planChoice } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const METRICS = "/metrics/stream/job1";

async function liveCurves() {
  await screen.findByText(/at step 2\. Min/);
  return FakeSocket.to(METRICS);
}

describe("the job page", () => {
  it("grows its curves from the stream, starting where the snapshot ends", async () => {
    mockApi();
    renderApp("/jobs/job1");
    const socket = await liveCurves();
    expect(socket.after).toBe("10");
    act(() => {
      socket.hello(10);
      socket.send({
        type: "record",
        seq: 11,
        data: { rank: 0, generation: 1, step: 150, time: 0, values: { loss: 2.25 } },
      });
    });
    expect(await screen.findByText("2.25 nats at step 150. Min 2.25 at step 150, max 5 at step 1.")).toBeVisible();
    expect(screen.getByText("150")).toBeVisible();
  });

  it("links a trial to its experiment, and a job of its own to none", async () => {
    let shown = job({ experiment: { id: "exp1", name: "ddp-versus-fsdp", trial: 3 } });
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(shown) });
    const { client } = renderApp("/jobs/job1");
    const link = await screen.findByRole("link", { name: "ddp-versus-fsdp" });
    expect(link).toHaveAttribute("href", "/experiments/exp1");
    expect(link.parentElement).toHaveTextContent("Trial 3 of experiment ddp-versus-fsdp");
    shown = job();
    await act(() => client.refetchQueries({ queryKey: ["jobs", "one", "job1"] }));
    await waitFor(() => expect(screen.queryByText(/of experiment/)).toBeNull());
  });

  it("fetches a new snapshot after a gap", async () => {
    const seen = mockApi();
    renderApp("/jobs/job1");
    const socket = await liveCurves();
    const before = seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job1").length;
    act(() => socket.send({ type: "gap", seq: 90, data: { from: 11, to: 90 } }));
    await waitFor(() =>
      expect(seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job1")).toHaveLength(before + 1),
    );
  });

  it.each([
    ["a script", { model: null, script: { path: "train.py" } }],
    ["an entrypoint", { model: null, entrypoint: "mine:task" }],
  ])("claims no unit for the loss of %s", async (_, part) => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ spec: { ...job().spec!, ...part } } as Partial<Job>)) });
    renderApp("/jobs/job1");
    expect(await screen.findByText("4 at step 2. Min 4 at step 2, max 5 at step 1.")).toBeVisible();
    expect(screen.queryByText(/nats/)).toBeNull();
    expect(screen.getByRole("heading", { name: "Loss" })).toBeVisible();
  });

  it("asks for exactly the range in the URL", async () => {
    const seen = mockApi();
    renderApp("/jobs/job1?from=5&to=50");
    await waitFor(() =>
      expect(
        seen.some(
          ({ path, url }) =>
            path === "/api/v1/metrics/jobs/job1" &&
            url.searchParams.get("first_step") === "5" &&
            url.searchParams.get("last_step") === "50",
        ),
      ).toBe(true),
    );
  });

  it("asks for the curves that are not in the default answer", async () => {
    const seen = mockApi({
      "GET /api/v1/metrics/jobs/job1": () => ok(metrics({ names: ["loss", "forward_seconds", "recall, macro"] })),
    });
    renderApp("/jobs/job1");
    await liveCurves();
    expect(
      seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job1").map(({ url }) => url.searchParams.getAll("name")),
    ).toContainEqual(["forward_seconds", "recall, macro"]);
  });

  it("tells with the spec which plan stands in the place of auto, and why", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ choice: planChoice() })) });
    renderApp("/jobs/job1?tab=spec");
    const chosen = await screen.findByRole("region", { name: "Plan that was chosen" });
    expect(chosen).toHaveTextContent("Requested: parallelism.strategy: auto.");
    expect(within(chosen).getByRole("table")).toHaveTextContent(
      "replicate 24.0 KiB41 msneeds 4.0 KiB, 1.0 KiB more than there is",
    );
  });

  it("cancels with If-Match, after naming the job and the loss", async () => {
    const seen = mockApi({
      "DELETE /api/v1/training/jobs/job1": () => ok(job({ desired: "cancel", state: "stopping" })),
    });
    renderApp("/jobs/job1?tab=spec");
    await userEvent.click(await screen.findByRole("button", { name: "Cancel job" }));
    const dialog = await screen.findByRole("dialog", { name: "Cancel gpt-stdlib?" });
    expect(dialog).toHaveTextContent("34 steps since the last checkpoint");
    expect(within(dialog).getByRole("button", { name: "Keep running" })).toHaveFocus();
    await userEvent.click(within(dialog).getByRole("button", { name: "Cancel job" }));
    await waitFor(() => expect(seen.find(({ method }) => method === "DELETE")?.headers.get("If-Match")).toBe('"7"'));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });

  it("pauses again with the fresh revision when only the revision changed", async () => {
    let revision = 7;
    const pause = ({ headers }: { headers: Headers }) => {
      if (headers.get("If-Match") === '"8"') return ok(job({ desired: "pause" }));
      revision = 8; // somebody else was a moment faster
      return problem(412, "stale_revision", "changed");
    };
    const seen = mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(job({ revision })),
      "PUT /api/v1/training/jobs/job1/pause": pause,
    });
    renderApp("/jobs/job1?tab=spec");
    await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
    await waitFor(() =>
      expect(seen.filter(({ method }) => method === "PUT").map(({ headers }) => headers.get("If-Match"))).toEqual([
        '"7"',
        '"8"',
      ]),
    );
  });

  it("offers only what the state allows", async () => {
    const offered = async (part: Partial<Job>) => {
      mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job(part)) });
      const { unmount } = renderApp("/jobs/job1?tab=spec");
      await screen.findByRole("heading", { name: "gpt-stdlib" });
      const names = ["Pause", "Resume", "Cancel job"].filter((name) => screen.queryByRole("button", { name }));
      unmount();
      return names;
    };
    expect(await offered({})).toEqual(["Pause", "Cancel job"]);
    expect(await offered({ state: "paused", desired: "pause" })).toEqual(["Resume", "Cancel job"]);
    expect(await offered({ state: "completed" })).toEqual([]);
  });

  it("refreshes when an event says that something changed", async () => {
    const seen = mockApi();
    renderApp("/jobs/job1?tab=timeline");
    await screen.findByText("Job submitted");
    const before = seen.filter(({ path }) => path.endsWith("/events")).length;
    act(() =>
      FakeSocket.to("/events/stream").send({
        topic: "events",
        type: "event",
        seq: 5,
        data: { seq: 5, type: "job.state", job_id: "job1" },
      }),
    );
    await waitFor(() => expect(seen.filter(({ path }) => path.endsWith("/events")).length).toBeGreaterThan(before));
  });

  it.each([
    ["running", "60% gpt-stdlib · Paceline"],
    ["failed", "Failed gpt-stdlib · Paceline"],
  ] as const)("tells in the browser's tab how far a job has come: %s", async (state, tab) => {
    const shown = job({ state });
    shown.progress = { ...shown.progress, step: 300, total_steps: 500 };
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(shown) });
    renderApp("/jobs/job1?tab=spec");
    await waitFor(() => expect(document.title).toBe(tab));
  });

  it("claims neither speed nor an ETA for a job that is paused", async () => {
    const paused = job({ state: "paused", desired: "pause", ran_seconds: 90 });
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(paused) });
    renderApp("/jobs/job1?tab=spec");
    const fact = (await screen.findByText("Ran for")).closest("div")!;
    expect(fact).toHaveTextContent("1 min 30 s");
    expect(screen.queryByText("ETA")).toBeNull();
    expect(screen.queryByText("Throughput")).toBeNull();
  });
});

it("says that an address leads nowhere, under a heading, with a way back", async () => {
  mockApi();
  renderApp("/nowhere");
  expect(await screen.findByRole("heading", { level: 1, name: "Page not found" })).toBeVisible();
  expect(screen.getByRole("navigation", { name: "Main" })).toBeVisible();
  expect(screen.getByRole("main")).toContainElement(screen.getByRole("link", { name: "Back to jobs" }));
});
