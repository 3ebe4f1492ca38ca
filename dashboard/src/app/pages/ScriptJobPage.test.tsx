/** The job page of a script, of which only what it tells is known. */
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { MISSING } from "@/lib/format";
import type { Job } from "@/lib/types";
import { hang, job, metrics, rank } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const SPEC = {
  ...job().spec,
  model: null,
  data: null,
  training: null,
  script: { path: "train.py", args: [], grace_seconds: 30, virtual_local_rank: false, saves_on_sigterm: false },
};

describe("the page of a script", () => {
  it("names the way to curves on the page of a script that tells of no steps", async () => {
    const script = { ...job().spec!, script: { path: "train.py" } };
    mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(job({ spec: script, state: "completed" } as Partial<Job>)),
      "GET /api/v1/metrics/jobs/job1": () =>
        ok(metrics({ names: [], curves: [], first_step: null, last_step: null } as never)),
    });
    renderApp("/jobs/job1");
    expect(
      await screen.findByText(
        /No step of the script was known\. Curves come from paceline\.log\(step, loss=\.\.\.\), from TensorBoard files/,
      ),
    ).toBeVisible();
    expect(screen.getByText("No curves")).toBeVisible();
    expect(screen.getByRole("link", { name: "Curves of a script" })).toHaveAttribute(
      "href",
      "/docs/scripts.html#curves-from-frameworks-and-from-wandbs-form",
    );
  });

  it("does not tell a script that failed at once to report steps, as if it did not", async () => {
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(job({ spec: { ...job().spec!, script: { path: "train.py" } }, state: "failed" } as Partial<Job>)),
      "GET /api/v1/metrics/jobs/job1": () =>
        ok(metrics({ names: [], curves: [], first_step: null, last_step: null } as never)),
    });
    renderApp("/jobs/job1");
    expect(await screen.findByText(/The script failed before a step of it was known/)).toBeVisible();
  });

  it("shows no step, loss or throughput of a script, which reports none, and Pause only where it can be paused", async () => {
    const script = (can_pause: boolean) =>
      job({
        strategy: "script",
        can_pause,
        spec: {
          ...job().spec,
          model: null,
          data: null,
          training: null,
          script: {
            path: "train.py",
            args: [],
            grace_seconds: 30,
            virtual_local_rank: false,
            saves_on_sigterm: can_pause,
          },
        },
        progress: { ...job().progress, step: 0, total_steps: null, loss: null },
      });
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(script(true)) });
    const saves = renderApp("/jobs/job1?tab=spec");
    expect(await screen.findByRole("button", { name: "Pause" })).toBeVisible();
    saves.unmount();
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(script(false)) });
    renderApp("/jobs/job1?tab=spec");
    expect(await screen.findByText("Ranks", { selector: "dt" })).toBeVisible();
    for (const name of ["Step", "Loss", "Throughput", "ETA", "Last checkpoint", "Pause"])
      expect(screen.queryByText(name)).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Cancel job" }));
    expect(await screen.findByRole("dialog")).toHaveTextContent(
      "Whatever the script has not saved itself will be lost.",
    );
  });

  it("shows the newest file of a script that looks like a checkpoint, and claims nothing of its steps", async () => {
    const saved_file = { path: "/w/out/checkpoint-40", bytes: 12_300_000, step: 40, time: new Date().toISOString() };
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(
          job({
            strategy: "script",
            spec: SPEC,
            progress: { ...job().progress, last_checkpoint_step: null, saved_file },
          }),
        ),
    });
    renderApp("/jobs/job1?tab=spec");
    const fact = (await screen.findByText("Last saved")).parentElement!;
    expect(fact).toHaveTextContent(/checkpoint-40.*step 40 by its name, 11\.7 MiB, \d+ s ago/);
    await userEvent.click(screen.getByRole("button", { name: "Cancel job" }));
    expect(await screen.findByRole("dialog")).toHaveTextContent(
      /Whatever the script has not saved itself will be lost. The newest checkpoint found is checkpoint-40/,
    );
  });

  it("promises no checkpoint of Paceline's, neither when the loss is not finite nor where checkpoints are listed", async () => {
    const saved_file = { path: "/w/out/checkpoint-40", bytes: 12_300_000, step: 40, time: new Date().toISOString() };
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(job({ strategy: "script", spec: SPEC, progress: { ...job().progress, not_finite_step: 41, saved_file } })),
    });
    renderApp("/jobs/job1?tab=checkpoints");
    const notice = await screen.findByRole("region", { name: "Loss not finite" });
    expect(notice).toHaveTextContent("The loss was not finite at step 41");
    expect(notice).toHaveTextContent(
      "Unless the script left out that update, the weights after it are unusable. The script may have its own checkpoint from before that step. Paceline keeps none for scripts.",
    );
    expect(notice).not.toHaveTextContent(/can (be )?restore/);
    expect(
      await screen.findByText(
        /^Paceline keeps no checkpoint of a script\. The newest checkpoint found is checkpoint-40, of /,
      ),
    ).toBeVisible();
    expect(screen.queryByText(/every few steps/)).toBeNull();
  });

  it("says that the loss is not finite where it still is, not where it was once", async () => {
    const progress = { ...job().progress, loss: "NaN" as const, not_finite_step: 41 };
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ strategy: "script", spec: SPEC, progress })) });
    renderApp("/jobs/job1");
    const notice = await screen.findByRole("region", { name: "Loss not finite" });
    expect(notice).toHaveTextContent("The loss is not finite since step 41");
    expect(notice).toHaveTextContent("The weights after that step are unusable.");
  });

  it("leaves out the throughput that a script does not tell, and the step of ranks that tell none", async () => {
    const silent = rank({ pid: 7, step: 0, heartbeat_age_seconds: null });
    const progress = { ...job().progress, tokens_per_second: null, samples_per_second: null };
    mockApi({
      "GET /api/v1/training/jobs/job1": () =>
        ok(job({ strategy: "script", spec: SPEC, progress, ranks: [silent, { ...silent, rank: 1, step: 133 }] })),
    });
    renderApp("/jobs/job1?tab=ranks");
    const table = await screen.findByRole("table", { name: "Ranks" });
    const column = within(table)
      .getAllByRole("columnheader")
      .findIndex((header) => header.textContent!.includes("Last step"));
    expect(
      within(table)
        .getAllByRole("row")
        .slice(1)
        .map((row) => within(row).getAllByRole("cell")[column]!.textContent),
    ).toEqual([MISSING, "133"]);
    expect(screen.getByText("Loss")).toBeVisible();
    expect(screen.queryByText("Throughput")).toBeNull();
  });

  it("says of curves that are read from the log that they are", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ printed_curves: true })) });
    renderApp("/jobs/job1?tab=curves");
    expect(await screen.findByRole("note")).toHaveTextContent("Read from printed lines");
  });

  it("tells of a job that seems to hang, and takes its stacks, once, when asked", async () => {
    const frames = [
      { function: "step", file: "f.py", line: 24, own: true },
      { function: "<module>", file: "f.py", line: 60, own: true },
    ];
    const odd = {
      rank: 1,
      node_name: "node-b",
      state: "running",
      differs: true,
      same_as: 1,
      summary: "is at f.py:24",
      taken_at: hang().told_at,
      cores: 0.99,
      gpu_percent: null,
      error: "",
      processes: [{ pid: 7, command: "python f.py", threads: [{ name: "MainThread", frames }], error: "" }],
    };
    const seen = mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(job({ hang: hang() })),
      "GET /api/v1/training/jobs/job1/stacks": () =>
        ok({
          job_id: "job1",
          generation: 1,
          summary: "rank 1 is at f.py:24 while rank 0 waits",
          differs: [1],
          ranks: [odd],
        }),
    });
    renderApp("/jobs/job1");
    const notice = await screen.findByRole("region", { name: "Seems to hang" });
    expect(notice).toHaveTextContent("rank 1 is at f.py:24");
    await userEvent.click(within(notice).getByRole("button", { name: "Stacks" }));
    expect(await screen.findByRole("region", { name: "Stack of rank 1" })).toHaveTextContent(
      'File "f.py", line 60, in <module> File "f.py", line 24, in step',
    );
    expect(screen.getByText("differs")).toBeVisible();
    expect(screen.getByText("CPU 99%")).toBeVisible();
    expect(seen.filter(({ path }) => path.endsWith("/stacks"))).toHaveLength(1);
  });

  it("takes no stacks unasked", async () => {
    const seen = mockApi();
    renderApp("/jobs/job1?tab=ranks");
    expect(await screen.findByText("No stacks taken")).toBeVisible();
    expect(seen.some(({ path }) => path.endsWith("/stacks"))).toBe(false);
    await userEvent.click(screen.getByRole("button", { name: "Take stacks" }));
    await waitFor(() => expect(seen.filter(({ path }) => path.endsWith("/stacks"))).toHaveLength(1));
  });
});
