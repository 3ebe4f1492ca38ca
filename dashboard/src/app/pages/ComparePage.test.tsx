import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { JobSummary } from "@/lib/types";
import { comparison, curve, job, jobSummary, metrics, page } from "@/testing/fixtures";
import { mockApi, never, ok, problem, type Handler, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const COMPARE = "GET /api/v1/training/compare";

function twoJobs(answer: Handler, more: Routes = {}) {
  return mockApi({
    [COMPARE]: answer,
    "GET /api/v1/training/jobs": () => ok(page([jobSummary({ id: "job2", name: "gpt-killed" }), jobSummary()])),
    "GET /api/v1/training/jobs/job2": () => ok(job({ id: "job2", name: "gpt-killed", state: "completed" })),
    "GET /api/v1/metrics/jobs/job2": () =>
      ok(
        metrics({
          job_id: "job2",
          curves: [curve({ last: [5, 4] }), curve({ generation: 2, steps: [2, 3], last: [4.5, 3] })],
        }),
      ),
    ...more,
  });
}

const panelOf = (name: string) => screen.findByRole("region", { name });

describe("the comparison of runs", () => {
  it("asks for the jobs in the URL and gives the verdict in words to copy", async () => {
    const seen = twoJobs(() => ok({ items: [comparison()] }));
    renderApp("/compare?jobs=job1,job2");
    const panel = await panelOf("gpt-stdlib and gpt-killed");
    expect(panel).toHaveTextContent(
      "Same run, to the last bit: 400 of 400 steps equal, on 1 and 2 ranks, through 1 recovery.",
    );
    expect(within(panel).getByRole("row", { name: /gpt-killed/ })).toHaveTextContent("2, then 1");
    expect(seen.find(({ path }) => path === "/api/v1/training/compare")!.url.searchParams.get("jobs")).toBe(
      "job1,job2",
    );
    const user = userEvent.setup();
    await user.click(within(panel).getByRole("button", { name: "Copy verdict" }));
    expect(await navigator.clipboard.readText()).toBe(
      "gpt-stdlib and gpt-killed: same run, to the last bit: 400 of 400 steps equal, on 1 and 2 ranks, through 1 recovery",
    );
  });

  it("says where two runs part, with the digits that tell them apart, and how their specs differ", async () => {
    const loss = {
      name: "loss",
      compared: 300,
      equal: 0,
      first_difference: { step: 7, values: [2.12345678, 2.12345999] },
      largest_relative_difference: 0.25,
      only_in_one: 0,
    };
    const seed = { path: "training.seed", values: ["7", "8"], changes_numbers: true, text: "" };
    twoJobs(() =>
      ok({ items: [comparison({ verdict: "different", same_run: false, metrics: [loss], spec_differences: [seed] })] }),
    );
    renderApp("/compare?jobs=job1,job2");
    const panel = await panelOf("gpt-stdlib and gpt-killed");
    expect(panel).toHaveTextContent("step 7: 2.123457 and 2.12346");
    expect(within(panel).getByRole("table", { name: "Spec differences" })).toHaveTextContent("training.seed78yes");
  });

  it("lists the files by which the code differs, in place of two digests alone", async () => {
    const [before, after] = ["a".repeat(64), "b".repeat(64)];
    const code = {
      path: "environment.code.bundle",
      values: [`"${before}"`, `"${after}"`],
      changes_numbers: true,
      text: "",
    };
    const changes = { since: before, added: ["new.py"], removed: ["old.py"], changed: ["train.py"], count: 205 };
    const seen = twoJobs(() => ok({ items: [comparison({ spec_differences: [code] })] }), {
      [`GET /api/v1/training/bundles/${after}/changes`]: () => ok(changes),
    });
    renderApp("/compare?jobs=job1,job2");
    const files = await screen.findByRole("table", { name: "Files that differ" });
    expect(files).toHaveTextContent("new.pyaddedold.pyremovedtrain.pychanged");
    expect(await panelOf("gpt-stdlib and gpt-killed")).toHaveTextContent("And 202 more files.");
    const asked = seen.find(({ path }) => path.endsWith("/changes"))!;
    expect(asked.url.searchParams.get("since")).toBe(before);
  });

  it("asks for no files where one of two jobs has no code of its own", async () => {
    const code = {
      path: "environment.code.bundle",
      values: ["absent", `"${"b".repeat(64)}"`],
      changes_numbers: true,
      text: "",
    };
    twoJobs(() => ok({ items: [comparison({ spec_differences: [code] })] }));
    renderApp("/compare?jobs=job1,job2");
    const panel = await panelOf("gpt-stdlib and gpt-killed");
    expect(within(panel).queryByRole("heading", { name: "Code" })).toBeNull();
  });

  it("begins with the curves of all of them, a repeated step by its newest generation", async () => {
    const seen = twoJobs(() => ok({ items: [comparison()] }));
    renderApp("/compare?jobs=job1,job2");
    const told =
      "gpt-stdlib: 4 nats at step 2. Min 4 at step 2, max 5 at step 1. gpt-killed: 3 nats at step 3. Min 3 at step 3, max 5 at step 1.";
    expect(await screen.findByText(told)).toBeVisible();
    const verdict = await panelOf("gpt-stdlib and gpt-killed");
    const curves = await panelOf("Curves of the runs");
    expect(curves.compareDocumentPosition(verdict) & Node.DOCUMENT_POSITION_FOLLOWING).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Loss as a table" }));
    expect(
      within(screen.getByRole("table", { name: "Curves as a table" }))
        .getAllByRole("row")
        .map((row) => row.textContent),
    ).toEqual(["Step ↓gpt-stdlibgpt-killed", "3–3", "244.5", "155"].map((text) => text.replace(" ↓", "")));
    expect(
      seen
        .filter(({ path }) => path.startsWith("/api/v1/metrics/jobs/"))
        .every(({ url }) => url.searchParams.get("name") === "loss"),
    ).toBe(true);
  });

  it("hides a run by a click on its name, and shows it again", async () => {
    twoJobs(() => ok({ items: [comparison()] }));
    renderApp("/compare?jobs=job1,job2");
    const user = userEvent.setup();
    const key = await screen.findByRole("button", { name: "gpt-stdlib", pressed: true });
    await user.click(key);
    expect(key).toHaveAttribute("aria-pressed", "false");
    expect(screen.getByText("gpt-killed: 3 nats at step 3. Min 3 at step 3, max 5 at step 1.")).toBeVisible();
    await user.click(key);
    expect(screen.getByText(/^gpt-stdlib: 4 nats/)).toBeVisible();
  });

  it("has a chart for each metric, and its axis, scale and smoothing, in the URL", async () => {
    const seen = twoJobs(() => ok({ items: [comparison()] }));
    const { router } = renderApp("/compare?jobs=job1,job2&metrics=loss,eval_loss&axis=time&log=true");
    expect(await screen.findByRole("region", { name: "Loss chart" })).toBeVisible();
    expect(screen.getByRole("region", { name: "Eval loss" })).toHaveTextContent("has reported eval_loss");
    expect(screen.getByRole("switch", { name: "Log scale" })).toBeChecked();
    const asked = seen.findLast(({ path }) => path === "/api/v1/metrics/jobs/job2")!;
    expect(asked.url.searchParams.getAll("name")).toEqual(["loss", "eval_loss"]);
    await userEvent.click(screen.getByRole("combobox", { name: "Smoothing" }));
    await userEvent.click(await screen.findByRole("option", { name: "Running mean", hidden: true }));
    await waitFor(() => expect(router.state.location.search).toMatchObject({ smooth: 20, smoothing: "mean" }));
    expect(screen.getByText("20 points")).toBeVisible();
  });

  it("takes names of jobs in the URL as well as ids, and says which it does not know", async () => {
    const seen = twoJobs(() => ok({ items: [comparison()] }));
    const { router, unmount } = renderApp("/compare?jobs=gpt-stdlib,gpt-killed");
    expect(await panelOf("gpt-stdlib and gpt-killed")).toBeVisible();
    expect(router.state.location.search).toEqual({ jobs: ["job1", "job2"] });
    expect(seen.some(({ path }) => path === "/api/v1/training/jobs/gpt-killed")).toBe(false);
    unmount();
    renderApp("/compare?jobs=gpt-stdlib,gpt-lost");
    expect(await screen.findByText(/There is no job gpt-lost/)).toBeVisible();
  });

  it("finds jobs by their whole names, archived ones last", async () => {
    const archived = { archived_at: "2026-11-24T06:00:00Z" };
    const named: Record<string, JobSummary[]> = {
      gpt: [jobSummary({ id: "job3", name: "gpt", ...archived }), jobSummary({ id: "job1", name: "gpt" })],
      old: [jobSummary({ id: "job2", name: "old", ...archived })],
    };
    const seen = twoJobs(() => ok({ items: [comparison()] }), {
      "GET /api/v1/training/jobs": ({ url }) => ok(page(named[url.searchParams.get("name") ?? ""] ?? [])),
    });
    const { router } = renderApp("/compare?jobs=gpt,old");
    await waitFor(() => expect(router.state.location.search).toEqual({ jobs: ["job1", "job2"] }));
    const asked = seen.find(({ path, url }) => path === "/api/v1/training/jobs" && url.searchParams.has("name"))!;
    expect(asked.url.searchParams.get("archived")).toBe("include");
  });

  it("claims a unit of the loss only where all jobs have one", async () => {
    twoJobs(() => ok({ items: [comparison()] }));
    const { unmount } = renderApp("/compare?jobs=job1,job2");
    expect(await within(await panelOf("Loss chart")).findByText("nats")).toBeVisible();
    unmount();
    const script = { ...job().spec!, model: null, script: { path: "train.py" } };
    twoJobs(() => ok({ items: [comparison()] }), {
      "GET /api/v1/training/jobs/job2": () => ok(job({ id: "job2", name: "gpt-killed", spec: script } as never)),
    });
    renderApp("/compare?jobs=job1,job2");
    expect(await screen.findByText(/^gpt-stdlib: 4 at step 2/)).toBeVisible();
    expect(await panelOf("Loss chart")).not.toHaveTextContent("nats");
  });

  it("asks for another job when there is only one, and takes it into the URL", async () => {
    twoJobs(() => ok({ items: [comparison()] }), {
      "GET /api/v1/training/jobs": () => ok(page([jobSummary(), jobSummary({ id: "job2", name: "gpt-killed" })])),
    });
    const { router } = renderApp("/compare?jobs=job1");
    expect(await screen.findByText("Choose another job")).toBeVisible();
    await userEvent.click(screen.getByRole("combobox", { name: "Add a job" }));
    const options = await screen.findAllByRole("option", { hidden: true });
    expect(options).toHaveLength(1);
    await userEvent.click(options[0]!);
    await waitFor(() => expect(router.state.location.search).toEqual({ jobs: ["job1", "job2"] }));
    expect(await panelOf("gpt-stdlib and gpt-killed")).toBeVisible();
  });

  it("shows that it is loading, then an error with its code and a way to retry", async () => {
    let reply: Handler = () => never;
    twoJobs((request) => reply(request));
    const { client } = renderApp("/compare?jobs=job1,job2");
    expect(await screen.findByRole("status", { name: "Loading the comparison" })).toBeVisible();
    reply = () => problem(500, "metrics_broken", "no");
    await act(async () => {
      await client.cancelQueries({ queryKey: ["comparison"] });
      void client.refetchQueries({ queryKey: ["comparison"] });
    });
    expect(await screen.findByText(/metrics_broken/)).toBeVisible();
    reply = () => ok({ items: [comparison()] });
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect(await panelOf("gpt-stdlib and gpt-killed")).toBeVisible();
  });
});

describe("picking jobs to compare", () => {
  it("stands in the URL of the list and leads to the comparison", async () => {
    twoJobs(() => ok({ items: [comparison()] }), {
      "GET /api/v1/training/jobs": () => ok(page([jobSummary(), jobSummary({ id: "job2", name: "gpt-killed" })])),
    });
    const { router } = renderApp("/jobs");
    await userEvent.click(await screen.findByRole("checkbox", { name: "Select gpt-stdlib" }));
    await userEvent.click(await screen.findByRole("checkbox", { name: "Select gpt-killed" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ pick: ["job1", "job2"] }));
    await userEvent.click(screen.getByRole("link", { name: "Compare 2 jobs" }));
    await waitFor(() => expect(router.state.location.pathname).toBe("/compare"));
    expect(router.state.location.search).toEqual({ jobs: ["job1", "job2"] });
  });

  it("starts from a job's own page too, beside the link to vary it", async () => {
    mockApi();
    const { router } = renderApp("/jobs/job1?tab=spec");
    expect(await screen.findByRole("link", { name: "Vary this" })).toHaveAttribute(
      "href",
      "/experiments/new?from=job1",
    );
    await userEvent.click(screen.getByRole("link", { name: "Compare with…" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ jobs: ["job1"] }));
  });
});
