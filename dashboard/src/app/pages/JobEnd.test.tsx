/** What arrives after a job has ended: its nodes may be behind with what its ranks have reported. */
import { act, screen, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { FakeSocket } from "@/testing/fakeSocket";
import { job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

it("shows the last points of a job that come after its end", async () => {
  let shown = job({ state: "running" });
  const seen = mockApi({ "GET /api/v1/training/jobs/job1": () => ok(shown) });
  const { client } = renderApp("/jobs/job1");
  await screen.findByText(/at step 2\. Min/);
  const snapshots = () => seen.filter(({ path }) => path === "/api/v1/metrics/jobs/job1");
  const before = snapshots().length;
  shown = job({ state: "completed", desired: "run", ended_at: job().created_at });
  await act(() => client.refetchQueries({ queryKey: ["jobs", "one", "job1"] }));
  await screen.findByText("completed");
  await waitFor(() => expect(snapshots()).toHaveLength(before + 1));
  await waitFor(() => expect(client.isFetching({ queryKey: ["metrics"] })).toBe(0));
  expect(screen.queryByText("live")).toBeNull();
  const socket = FakeSocket.to("/metrics/stream/job1");
  expect(socket.closed).toBe(false);
  act(() => {
    socket.hello(10);
    socket.send({
      type: "record",
      seq: 11,
      data: { rank: 0, generation: 1, step: 1000, time: 0, values: { loss: 2.25 } },
    });
  });
  expect(await screen.findByText(/^2\.25 nats at step 1,000\./)).toBeVisible();
});
