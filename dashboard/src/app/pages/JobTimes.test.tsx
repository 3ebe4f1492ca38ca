/** How long a job has run and may still run: by the coordinator's counts, whatever time the browser has. */
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/lib/types";
import { job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const HOUR = 3600;
const ago = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();

/** The page of a job that was paused for two of its three days. */
function open(part: Partial<Job>) {
  mockApi({
    "GET /api/v1/training/jobs/job1": () => ok(job({ state: "running", started_at: ago(72 * HOUR), ...part })),
  });
  renderApp("/jobs/job1?tab=spec");
}

it("counts neither a pause nor a queue as running", async () => {
  open({ ran_seconds: HOUR + 5 });
  expect(await screen.findByText("running for 1 h 00 min")).toBeVisible();
});

it("tells a script's duration without its pauses", async () => {
  open({ ran_seconds: HOUR + 5, spec: { ...job().spec!, model: null, script: { path: "train.py" } } as Job["spec"] });
  expect((await screen.findByText("Duration")).parentElement).toHaveTextContent("1 h 00 min");
});

it("tells the time that is left though the browser's clock is ahead", async () => {
  open({ time_limit_seconds: 2 * HOUR, time_left_seconds: HOUR + 55, time_limit_at: ago(HOUR) });
  expect((await screen.findByText("Time left")).parentElement).toHaveTextContent("1 h 00 min");
});
