import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { Job } from "@/lib/types";
import { FakeSocket } from "@/testing/fakeSocket";
import { checkpoint, failure, job, metrics, page, planChoice } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const METRICS = "/metrics/stream/job1";

async function liveCurves() {
  await screen.findByText(/at step 2; best/);
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
      socket.send({ type: "record", seq: 11, data: { rank: 0, generation: 1, step: 150, time: 0, values: { loss: 2.25 } } });
    });
    expect(await screen.findByText("2.25 nats at step 150; best 2.25 near step 150.")).toBeVisible();
    expect(screen.getByText("150")).toBeVisible();
  });

  it("fetches a new snapshot after a gap", async () => {
    const seen = mockApi();
    renderApp("/jobs/job1");
    const socket = await liveCurves();
    const before = seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job1").length;
    act(() => socket.send({ type: "gap", seq: 90, data: { from: 11, to: 90 } }));
    await waitFor(() => expect(seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job1")).toHaveLength(before + 1));
  });

  it("says at once that a loss is not finite, and what is kept", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ progress: { ...job().progress, not_finite_step: 11 } })) });
    renderApp("/jobs/job1");
    const notice = await screen.findByRole("region", { name: "Loss not finite" });
    expect(notice).toHaveTextContent("The loss is not finite since step 11");
    expect(notice).toHaveTextContent("The last checkpoint from before it is kept");
  });

  it("names the way to curves on the page of a script that tells of no steps", async () => {
    const script = { ...job().spec!, script: { path: "train.py" } };
    mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(job({ spec: script, state: "completed" } as Partial<Job>)),
      "GET /api/v1/metrics/jobs/job1": () => ok(metrics({ names: [], curves: [], first_step: null, last_step: null } as never)),
    });
    renderApp("/jobs/job1");
    expect(await screen.findByText(/The script told of no step: paceline\.log\(step, loss=\.\.\.\) in it makes live curves/)).toBeVisible();
  });

  it("asks for exactly the range in the URL", async () => {
    const seen = mockApi();
    renderApp("/jobs/job1?from=5&to=50");
    await waitFor(() => expect(seen.some(({ path, url }) => path === "/api/v1/metrics/jobs/job1" && url.searchParams.get("first_step") === "5" && url.searchParams.get("last_step") === "50")).toBe(true));
  });

  it("asks for the curves that are not in the default answer", async () => {
    const seen = mockApi({ "GET /api/v1/metrics/jobs/job1": () => ok(metrics({ names: ["loss", "forward_seconds", "perplexity"] })) });
    renderApp("/jobs/job1");
    await liveCurves();
    expect(seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job1").map(({ url }) => url.searchParams.get("names"))).toContain("forward_seconds,perplexity");
  });

  it("tells with the spec which plan stands in the place of auto, and why", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ choice: planChoice() })) });
    renderApp("/jobs/job1?tab=spec");
    const chosen = await screen.findByRole("region", { name: "Plan that was chosen" });
    expect(chosen).toHaveTextContent("Asked for: parallelism.strategy: auto.");
    expect(within(chosen).getByRole("table")).toHaveTextContent("replicate 24.0 KiB41 msneeds 4.0 KiB, 1.0 KiB more than there is");
  });

  it("cancels with If-Match, after naming the job and the loss", async () => {
    const seen = mockApi({ "DELETE /api/v1/training/jobs/job1": () => ok(job({ desired: "cancel", state: "stopping" })) });
    renderApp("/jobs/job1?tab=spec");
    await userEvent.click(await screen.findByRole("button", { name: "Cancel job" }));
    const dialog = await screen.findByRole("dialog", { name: "Cancel gpt-stdlib?" });
    expect(dialog).toHaveTextContent("34 steps since the last checkpoint");
    expect(within(dialog).getByRole("button", { name: "Keep it" })).toHaveFocus();
    await userEvent.click(within(dialog).getByRole("button", { name: "Cancel job" }));
    await waitFor(() => expect(seen.find(({ method }) => method === "DELETE")?.headers.get("If-Match")).toBe('"7"'));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });

  it("pauses again with the fresh revision when only the revision changed", async () => {
    let revision = 7;
    const pause = ({ headers }: { headers: Headers }) => (headers.get("If-Match") === '"8"' ? ok(job({ desired: "pause" })) : problem(412, "stale_revision", "changed"));
    const seen = mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ revision: revision++ })), "PUT /api/v1/training/jobs/job1/pause": pause });
    renderApp("/jobs/job1?tab=spec");
    await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
    await waitFor(() => expect(seen.filter(({ method }) => method === "PUT").map(({ headers }) => headers.get("If-Match"))).toEqual(['"7"', '"8"']));
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

  it("shows the causing rank of a failure, its exception and last lines, its victims folded", async () => {
    const victim = failure({ kind: "peer_lost", rank: 0, node_name: "node-a", message: "peer closed", signal: null, exit_code: 1 });
    const cause = failure({ kind: "exception", message: "boom", exception: "ValueError", signal: null, exit_code: 1, last_lines: ["about to fail", ""], victims: [victim] });
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state: "failed", failure: cause })) });
    renderApp("/jobs/job1?tab=spec");
    const panel = await screen.findByRole("region", { name: "Failure" });
    expect(within(panel).getByText("Rank 1 on node-b raised ValueError")).toBeVisible();
    expect(within(panel).getByText("boom")).toBeVisible();
    expect(panel.compareDocumentPosition(screen.getByText("Restarts"))).toBe(Node.DOCUMENT_POSITION_FOLLOWING);
    expect(within(panel).getByText("about to fail")).toBeVisible();
    expect(within(panel).getByText(/peer closed/)).not.toBeVisible();
  });

  it("says why a job waits and what would fit", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state: "queued", pending: { code: "no_slots", text: "needs 4 slots", missing: "2 slots", nearest_fit: "node b has 2", next_step: "add a node" } })) });
    renderApp("/jobs/job1?tab=spec");
    const panel = await screen.findByRole("region", { name: "Why this job is waiting" });
    for (const text of ["Needs 4 slots", "2 slots", "node b has 2", "add a node"]) expect(panel).toHaveTextContent(text);
  });

  it("names what depends on a checkpoint before deleting it, and confirms it", async () => {
    const seen = mockApi({ "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint({ used_by: [{ job_id: "job9", job_name: "gpt-again" }] })])), "DELETE /api/v1/checkpoints/c1": () => ok(checkpoint({ state: "deleting" }), 202) });
    renderApp("/jobs/job1?tab=checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Delete the checkpoint of step 100" }));
    const dialog = await screen.findByRole("dialog");
    expect(dialog).toHaveTextContent("1 unfinished job started from it: gpt-again");
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete checkpoint" }));
    await waitFor(() => expect(seen.find(({ method }) => method === "DELETE")?.url.searchParams.get("confirm")).toBe("true"));
  });

  it("says what a save cost the steps around it, and nothing where nobody told", async () => {
    mockApi({ "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint(), checkpoint({ id: "c0", step: 50, stall_seconds: null, write_seconds: null, slowdown: null })])) });
    renderApp("/jobs/job1?tab=checkpoints");
    const told = (await screen.findByRole("button", { name: "Delete the checkpoint of step 100" })).closest("tr")!;
    expect(told).toHaveTextContent("12 ms");
    expect(told).toHaveTextContent("0.41 s, steps × 1.07");
    expect(screen.getByRole("button", { name: "Delete the checkpoint of step 50" }).closest("tr")).not.toHaveTextContent("×");
  });

  it("confirms what the dialog said of a pinned checkpoint, which the coordinator would otherwise refuse for ever", async () => {
    const seen = mockApi({ "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint({ pinned: true, latest: false })])), "DELETE /api/v1/checkpoints/c1": () => ok(checkpoint({ state: "deleting" }), 202) });
    renderApp("/jobs/job1?tab=checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Delete the checkpoint of step 100" }));
    const dialog = await screen.findByRole("dialog");
    expect(dialog).toHaveTextContent("It is pinned.");
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete checkpoint" }));
    await waitFor(() => expect(seen.find(({ method }) => method === "DELETE")?.url.searchParams.get("confirm")).toBe("true"));
  });

  it("shows no step, loss or throughput of a script, which reports none, and no Pause, which it cannot do", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ strategy: "script", spec: { ...job().spec, model: null, data: null, training: null, script: { path: "train.py", args: [], grace_seconds: 30 } }, progress: { ...job().progress, step: 0, total_steps: null, loss: null } })) });
    renderApp("/jobs/job1?tab=spec");
    expect(await screen.findByText("World")).toBeVisible();
    for (const name of ["Step", "Loss", "Throughput", "ETA", "Last checkpoint", "Pause"]) expect(screen.queryByText(name)).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Cancel job" }));
    expect(await screen.findByRole("dialog")).toHaveTextContent("What the script has not saved itself is lost.");
  });

  it("refreshes when an event says that something changed", async () => {
    const seen = mockApi();
    renderApp("/jobs/job1?tab=timeline");
    await screen.findByText("Job submitted");
    const before = seen.filter(({ path }) => path.endsWith("/events")).length;
    act(() => FakeSocket.to("/events/stream").send({ topic: "events", type: "event", seq: 5, data: { seq: 5, type: "job.state", job_id: "job1" } }));
    await waitFor(() => expect(seen.filter(({ path }) => path.endsWith("/events")).length).toBeGreaterThan(before));
  });
});
