import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { failure, job, silentNode } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

describe("the notices of a job", () => {
  it("says at once that a loss is not finite, and what is kept", async () => {
    mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(job({ progress: { ...job().progress, not_finite_step: 11 } })),
    });
    renderApp("/jobs/job1");
    const notice = await screen.findByRole("region", { name: "Loss not finite" });
    expect(notice).toHaveTextContent("The loss is not finite since step 11");
    expect(notice).toHaveTextContent("The last checkpoint from before that step is kept");
  });

  it("says what was done about a bad loss, and which samples it had", async () => {
    const bad_loss = {
      step: 61,
      kind: "not_finite",
      act: "skip_update",
      what: "the loss of step 61 is NaN",
      done: "the update was skipped",
      sample_ids: [12, 55],
      samples: 16,
    } as const;
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(job({ progress: { ...job().progress, bad_loss: { ...bad_loss, sample_ids: [12, 55] } } })),
    });
    renderApp("/jobs/job1");
    const notice = await screen.findByRole("region", { name: "Loss not finite" });
    expect(notice).toHaveTextContent("The loss of step 61 is NaN");
    expect(notice).toHaveTextContent("The update was skipped.");
    expect(notice).toHaveTextContent("Samples in step 61: 12, 55 and 14 more.");
  });

  it("says that a node is silent before its ranks are given up", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ silent_nodes: [silentNode()] })) });
    renderApp("/jobs/job1");
    expect(await screen.findByRole("region", { name: "Silent nodes" })).toHaveTextContent(silentNode().message);
  });

  it("shows the causing rank of a failure, its exception and last lines, its victims folded", async () => {
    const victim = failure({
      kind: "peer_lost",
      rank: 0,
      node_name: "node-a",
      message: "peer closed",
      signal: null,
      exit_code: 1,
    });
    const cause = failure({
      kind: "exception",
      message: "boom",
      exception: "ValueError",
      signal: null,
      exit_code: 1,
      last_lines: ["about to fail", ""],
      victims: [victim],
    });
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state: "failed", failure: cause })) });
    renderApp("/jobs/job1?tab=spec");
    const panel = await screen.findByRole("region", { name: "Failure" });
    expect(within(panel).getByText("Rank 1 on node-b raised ValueError")).toBeVisible();
    expect(within(panel).getByText("boom")).toBeVisible();
    expect(panel.compareDocumentPosition(screen.getByText("Restarts"))).toBe(Node.DOCUMENT_POSITION_FOLLOWING);
    expect(within(panel).getByText("about to fail")).toBeVisible();
    expect(within(panel).getByText(/peer closed/)).not.toBeVisible();
  });

  it("opens with the line of the user's code, the message and the traceback without the frames of libraries", async () => {
    const raised = { kind: "exception", message: "'missing_key'", exception: "KeyError", signal: null, exit_code: 1 };
    const cause = failure({
      ...raised,
      where: "lookup in crashy.py:6",
      traceback: "Traceback:\n  trainer.py\n  crashy.py, in lookup\nKeyError: 'missing_key'",
      users_traceback: "Traceback:\n  … 1 frame of libraries\n  crashy.py, in lookup\nKeyError: 'missing_key'",
      last_lines: ["building task"],
      victims: [failure({ ...raised, rank: 0, node_name: "node-a", share: "same" })],
    });
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state: "failed", failure: cause })) });
    renderApp("/jobs/job1?tab=spec");
    const panel = await screen.findByRole("region", { name: "Failure" });
    expect(
      within(panel).getByText("Rank 1 on node-b and rank 0 on node-a raised KeyError in lookup at crashy.py:6"),
    ).toBeVisible();
    expect(within(panel).getByRole("region", { name: "Traceback" })).toBeVisible();
    expect(within(panel).getByText(/… 1 frame of libraries/)).toBeVisible();
    expect(within(panel).getByText(/trainer\.py/)).not.toBeVisible();
    expect(within(panel).getByText("building task")).not.toBeVisible();
  });

  it("leads to the log of a rank that left no lines with its failure, and does not claim that it printed none", async () => {
    const seen = mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state: "failed", failure: failure() })) });
    renderApp("/jobs/job1?tab=spec");
    const panel = await screen.findByRole("region", { name: "Failure" });
    expect(panel).not.toHaveTextContent("printed nothing");
    await userEvent.click(within(panel).getByRole("link", { name: "Log of rank 1" }));
    expect(await screen.findByRole("tab", { name: "Logs", selected: true })).toBeVisible();
    await waitFor(() =>
      expect(seen.some(({ path, url }) => path.endsWith("/logs") && url.searchParams.get("rank") === "1")).toBe(true),
    );
  });

  it("says why a job waits and what would fit", async () => {
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(
          job({
            state: "queued",
            pending: {
              code: "no_slots",
              text: "needs 4 slots",
              missing: "2 slots",
              nearest_fit: "node b has 2",
              no_launch: null,
              next_step: "add a node",
            },
          }),
        ),
    });
    renderApp("/jobs/job1?tab=spec");
    const panel = await screen.findByRole("region", { name: "Why this job is waiting" });
    for (const text of ["Needs 4 slots", "2 slots", "node b has 2", "add a node"])
      expect(panel).toHaveTextContent(text);
  });

  it("shows how much of a time limit is left, and the way on once it is reached", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ time_limit_seconds: 7200, time_left_seconds: 1800 })) });
    const running = renderApp("/jobs/job1?tab=spec");
    expect(await screen.findByText("Time left")).toBeVisible();
    expect(screen.getByText("of 2 h 00 min")).toBeVisible();
    running.unmount();
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(job({ time_limit_seconds: 7200, state: "failed", end_reason: "time_limit" })),
    });
    renderApp("/jobs/job1?tab=spec");
    expect(await screen.findByRole("region", { name: "Time limit" })).toHaveTextContent(
      "Restore its newest checkpoint",
    );
    expect(screen.queryByText("Time left")).toBeNull();
  });

  it("advises a checkpoint from before the loss that is not finite, once the time limit is reached", async () => {
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(
          job({
            time_limit_seconds: 7200,
            state: "failed",
            end_reason: "time_limit",
            progress: { ...job().progress, not_finite_step: 1200 },
          }),
        ),
    });
    renderApp("/jobs/job1?tab=spec");
    expect(await screen.findByRole("region", { name: "Time limit" })).toHaveTextContent(
      "Restore a checkpoint from before step 1,200 (Checkpoints)",
    );
  });
});
