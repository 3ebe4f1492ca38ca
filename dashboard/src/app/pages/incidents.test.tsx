import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { Incident, Job } from "@/lib/types";
import { FakeSocket } from "@/testing/fakeSocket";
import { failure, generation, incident, job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const INCIDENT_LOG = "/api/v1/training/jobs/job1/incidents";
const OPEN: Partial<Incident> = {
  outcome: "open",
  first_step_at: null,
  over_at: null,
  outage_seconds: null,
  resumed_step: null,
  steps_lost: null,
  seconds_lost: null,
  new_size: null,
  age_seconds: 2,
  phases: [
    { name: "detect", seconds: 0.02, under_way: false },
    { name: "decide", seconds: 1.98, under_way: true },
  ],
};

function withIncidents(...incidents: Incident[]) {
  const generations = [
    generation({ end_reason: "rank_crashed" }),
    generation({ generation: 2, world_size: 1, start_step: 134 }),
  ];
  return mockApi({
    [`GET ${INCIDENT_LOG}`]: () => ok(incidents),
    "GET /api/v1/training/jobs/job1": () => ok(job({ generations, generation: 2, actual_world_size: 1 })),
  });
}

describe("the incident log", () => {
  it("tells what happened, what was done and what it cost", async () => {
    withIncidents(incident());
    renderApp("/jobs/job1?tab=incidents");
    const row = (await screen.findByText("Rank 1 on node-b was killed by SIGKILL")).closest("tr")!;
    for (const text of ["recovered", "0.35 s", "1 of 2"]) expect(row).toHaveTextContent(text);
    expect(within(row).getByRole("img")).toHaveAccessibleName(
      "Outage of 0.35 s: detect 20 ms, decide 30 ms, fence 0.1 s, rebuild 50 ms, transfer 50 ms, first step 0.1 s",
    );
  });

  it("tells a fall-back in place from a restart, and to which step", async () => {
    withIncidents(
      incident({ action: "fell_back", resumed_step: 120, steps_lost: 14 }),
      incident({ id: "i2", action: "restarted", resumed_step: 100, steps_lost: 3 }),
    );
    renderApp("/jobs/job1?tab=incidents");
    const [anew, inPlace] = (await screen.findAllByText("Rank 1 on node-b was killed by SIGKILL")).map((cell) =>
      cell.closest("tr")!,
    );
    expect(inPlace).toHaveTextContent("fell backto step 120, in place");
    expect(within(inPlace!).getByText("14")).toBeVisible();
    expect(anew).toHaveTextContent("restartedto step 100, in new processes");
  });

  it("unfolds to its phases and to the ranks that were dragged down, which stay folded", async () => {
    withIncidents(incident());
    renderApp("/jobs/job1?tab=incidents");
    await userEvent.click(await screen.findByRole("button", { name: /^Details: Rank 1/ }));
    const fence = within(screen.getByRole("table", { name: "Phases of the outage" }))
      .getByText("Fence")
      .closest("tr")!;
    expect(fence).toHaveTextContent("0.1 s");
    expect(fence).toHaveTextContent("29%");
    expect(screen.getByText("1 rank that failed as a result")).toBeVisible();
    expect(screen.getByText(/Rank 0 on node-a lost the connection/)).not.toBeVisible();
  });

  it("tells the ranks of the same failure, and those of another one, from those that were dragged down", async () => {
    const raised = {
      kind: "exception",
      signal: null,
      exception: "ValueError",
      message: "no column",
      where: "load in train.py:22",
    };
    const victims = [
      failure({ ...raised, rank: 0, share: "same" }),
      failure({ ...raised, rank: 2, message: "no row", share: "also" }),
      failure({ rank: 3 }),
    ];
    withIncidents(incident({ culprit: failure({ ...raised, victims }) }));
    renderApp("/jobs/job1?tab=incidents");
    await userEvent.click(await screen.findByRole("button", { name: /^Details: Rank 1/ }));
    for (const title of [
      "1 rank with the same failure",
      "1 rank with a different failure",
      "1 rank that failed as a result",
    ]) {
      expect(screen.getByText(title)).toBeVisible();
    }
  });

  it("shows one that is under way at the top of the page, running, until its first step is done", async () => {
    let listed = [incident(OPEN)];
    const failing = mockApi({
      [`GET ${INCIDENT_LOG}`]: () => ok(listed),
      "GET /api/v1/training/jobs/job1": () => ok(job({ state: "recovering", generations: [generation()] })),
    });
    renderApp("/jobs/job1?tab=incidents");
    const notice = await screen.findByRole("region", { name: "Incident under way" });
    expect(notice).toHaveTextContent("Rank 1 on node-b was killed by SIGKILL");
    expect(notice).toHaveTextContent(/Recovering: [\d.]+ s so far/);
    listed = [incident()];
    act(() =>
      FakeSocket.to("/events/stream").send({
        topic: "events",
        type: "event",
        seq: 5,
        data: { seq: 5, type: "job.carried_on", job_id: "job1" },
      }),
    );
    await waitFor(() => expect(screen.queryByRole("region", { name: "Incident under way" })).toBeNull());
    expect(failing.filter(({ path }) => path === INCIDENT_LOG).length).toBeGreaterThan(1);
    expect(screen.getByText("recovered")).toBeVisible();
  });

  it("says of one that never came to a step what cut it short", async () => {
    withIncidents(incident({ ...OPEN, action: "restarted", outcome: "overtaken", outage_seconds: 2 }));
    renderApp("/jobs/job1?tab=incidents");
    const row = (await screen.findByText("Rank 1 on node-b was killed by SIGKILL")).closest("tr")!;
    expect(row).toHaveTextContent("restartedsuperseded by the next fault");
    expect(screen.queryByText(/so far/)).toBeNull();
    expect(screen.queryByRole("region", { name: "Incident under way" })).toBeNull();
  });

  it("says how many ranks it runs with, of how many, and why", async () => {
    withIncidents(incident());
    renderApp("/jobs/job1?tab=spec");
    const notice = await screen.findByRole("region", { name: "Fewer ranks than asked" });
    await waitFor(() =>
      expect(notice).toHaveTextContent(
        "Runs with 1 of 2 ranksRank 1 on node-b was killed by SIGKILL. The other ranks continue",
      ),
    );
    expect(screen.getByText("runs with 1 of 2 ranks")).toBeVisible();
  });

  it("says of an elastic script that it was started again, and what it waits for", async () => {
    const spec = { ...job().spec, script: { path: "train.py" } } as unknown as Job["spec"];
    const pending = {
      code: "no_room_to_grow",
      text: "runs on 1 of 2 nodes; 1 more node with 1 free slot wanted",
      missing: null,
      nearest_fit: null,
      no_launch: null,
      next_step: "add a node",
    };
    mockApi({
      [`GET ${INCIDENT_LOG}`]: () => ok([incident()]),
      "GET /api/v1/training/jobs/job1": () =>
        ok(
          job({
            spec,
            pending,
            generation: 2,
            actual_world_size: 1,
            generations: [
              generation({ ended_at: "2026-11-20T09:00:00Z" }),
              generation({ generation: 2, world_size: 1 }),
            ],
          }),
        ),
    });
    renderApp("/jobs/job1?tab=spec");
    const notice = await screen.findByRole("region", { name: "Fewer ranks than asked" });
    await waitFor(() =>
      expect(notice).toHaveTextContent(
        "was killed by SIGKILL. The other ranks restarted.1 more node with 1 free slot wanted. Next: add a node.",
      ),
    );
  });

  it("blames no fault for ranks that a resize asked for", async () => {
    const generations = [
      generation({ ended_at: "2026-11-20T09:10:00Z" }),
      generation({ generation: 2, world_size: 1, start_step: 134 }),
    ];
    mockApi({
      [`GET ${INCIDENT_LOG}`]: () => ok([incident()]),
      "GET /api/v1/training/jobs/job1": () =>
        ok(job({ generations, generation: 2, world_size: 4, actual_world_size: 1 })),
    });
    renderApp("/jobs/job1");
    expect(await screen.findByRole("tab", { name: "Incidents 1" })).toBeVisible();
    expect(screen.getByRole("region", { name: "Fewer ranks than asked" })).not.toHaveTextContent("SIGKILL");
  });

  it("counts no fault where a person removed the node", async () => {
    const words = { kind: "node_removed", signal: null, exit_code: null, message: "removed by admin" } as const;
    withIncidents(incident({ cause: "node_removed", culprit: failure(words) }));
    renderApp("/jobs/job1?tab=incidents");
    const row = (await screen.findByText("Rank 1 on node-b ended with its node")).closest("tr")!;
    expect(row).toHaveTextContent("removed by admin");
    expect(screen.queryByText("1 fault")).toBeNull();
  });

  it("says nothing of that once the job has ended, or has all its ranks", async () => {
    const ended = [
      generation({ ended_at: "2026-11-20T09:10:00Z" }),
      generation({ generation: 2, world_size: 1, ended_at: "2026-11-20T09:20:00Z" }),
    ];
    mockApi({
      [`GET ${INCIDENT_LOG}`]: () => ok([incident()]),
      "GET /api/v1/training/jobs/job1": () =>
        ok(job({ state: "completed", generations: ended, actual_world_size: null })),
    });
    renderApp("/jobs/job1?tab=incidents");
    await screen.findByText("Rank 1 on node-b was killed by SIGKILL");
    expect(screen.queryByRole("region", { name: "Fewer ranks than asked" })).toBeNull();
  });

  it("counts the faults on its tab and lists them with the values of a chart", async () => {
    withIncidents(incident());
    renderApp("/jobs/job1");
    expect(await screen.findByRole("tab", { name: "Incidents 1" })).toBeVisible();
    await userEvent.click(await screen.findByRole("button", { name: "Loss as a table" }));
    expect(
      within(screen.getByRole("table", { name: "Marks on Loss" })).getByText(
        /Rank 1 on node-b was killed by SIGKILL. Generation 2 continues from step 134 on 1 rank: outage 0.35 s, no step lost./,
      ),
    ).toBeVisible();
  });
});
