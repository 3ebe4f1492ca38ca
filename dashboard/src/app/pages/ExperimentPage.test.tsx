import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { keys } from "@/lib/keys";
import {
  analysis,
  configuration,
  effect,
  estimate,
  experiment,
  experimentAnalysis,
  fit,
  page,
  trial,
  trialCounts,
} from "@/testing/fixtures";
import { mockApi, never, ok, problem, type Handler } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const made = () => ok(experimentAnalysis());
const trials = () => ok(page([trial()]));
const region = (name: string) => screen.findByRole("region", { name });

/** By how many pixels a path from one point to another rises or falls. */
function heightOf(path: string): number {
  const [, from, to] = /^M\S+ ([^L]+)L\S+ (.+)$/.exec(path)!;
  return Math.abs(Number(from) - Number(to));
}

describe("the list of experiments", () => {
  it("asks for what stands in its URL, and says what filters leave out", async () => {
    const seen = mockApi({ "GET /api/v1/experiments": () => ok(page([])) });
    renderApp("/experiments?status=running,paused&q=ddp&project=vision&sort=name&nonsense=1");
    expect(await screen.findByText("No experiment matches")).toBeVisible();
    const asked = seen.find(({ path }) => path === "/api/v1/experiments")!.url.searchParams;
    expect(Object.fromEntries(asked)).toEqual({
      limit: "50",
      sort: "name",
      q: "ddp",
      project: "vision",
      status: "running,paused",
    });
  });

  it("shows how far each is, and leads to it", async () => {
    mockApi();
    const { router } = renderApp("/experiments");
    const row = await screen.findByRole("row", { name: /ddp-versus-fsdp/ });
    expect(row).toHaveTextContent("4 of 8 · 1 refused");
    expect(row).toHaveTextContent("1 min 30 s");
    expect(row.closest("table")!.parentElement).toHaveClass("sideways"); // fades at the edge on a phone
    await userEvent.click(within(row).getByRole("link"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/experiments/exp1"));
  });
});

describe("the panels of an experiment", () => {
  it.each([
    ["/experiments", "GET /api/v1/experiments", keys.experiments, /ddp-versus-fsdp/, () => ok(page([experiment()]))],
    ["/experiments/exp1", "GET /api/v1/experiments/exp1/analysis", keys.analysis("exp1"), /Take ddp/, made],
    [
      "/experiments/exp1?tab=trials",
      "GET /api/v1/experiments/exp1/trials",
      keys.trials("exp1"),
      /ddp-versus-fsdp-0/,
      trials,
    ],
  ])("at %s are loading, broken, there, and then stale", async (address, route, queryKey, shown, answer) => {
    let reply: Handler = () => never;
    mockApi({ [route]: (request) => reply(request) });
    const { client } = renderApp(address);
    const loading = await screen.findByRole("status", { name: /^Loading (the|experiments)/ });
    const panel = loading.closest("section")!;
    const answers = async (next: Handler) => {
      reply = next;
      await act(async () => {
        await client.cancelQueries({ queryKey });
        void client.refetchQueries({ queryKey });
      });
    };
    await answers(() => problem(500, "database_locked", "The database is locked."));
    expect(await within(panel).findByText(/database_locked/)).toBeVisible();
    reply = answer;
    fireEvent.click(within(panel).getByRole("button", { name: "Retry" }));
    expect((await within(panel).findAllByText(shown))[0]).toBeVisible();
    await answers(() => problem(503, "overloaded", "Too much."));
    expect(await within(panel).findByText(/Could not refresh \(overloaded\)/)).toBeVisible();
    expect(within(panel).getAllByText(shown)[0]).toBeVisible();
  });
});

describe("the page of an experiment", () => {
  it("interprets first, then shows only the fields that differ, with links to jobs", async () => {
    mockApi();
    renderApp("/experiments/exp1");
    await screen.findByText("Take ddp on 4 ranks.");
    expect(await region("Interpretation")).toHaveTextContent(
      /Take ddp on 4 ranks.*fsdp costs 11% of the speed.*One repeat each/,
    );
    const table = screen.getByRole("table", { name: "Configurations" });
    expect(within(table).getByRole("row", { name: /recommended/ })).toHaveTextContent("ddp4");
    expect(within(table).getByRole("row", { name: /shard=4 does not divide 6 layers/ })).toHaveTextContent("refused");
    expect(await within(table).findByRole("link", { name: "Job of trial 0" })).toHaveAttribute("href", "/jobs/job1");
  });

  it.each([
    ["minimize", "0.5"],
    ["maximize", "99.5"],
  ])("has the best ten of 200 configurations first, and all on request, to %s", async (goal, best) => {
    const grid = Array.from({ length: 200 }, (_, index) =>
      configuration({
        index,
        values: { "optimizer.lr": index + 1 },
        trials: [],
        metric: index === 0 ? null : estimate((200 - index) / 2),
      }),
    );
    const made = analysis({ configurations: grid, best: null, axes: ["optimizer.lr"], series: [] });
    mockApi({
      "GET /api/v1/experiments/exp1": () => ok(experiment({ spec: { metric: { name: "loss", goal } } })),
      "GET /api/v1/experiments/exp1/analysis": () => ok(experimentAnalysis({ analysis: made })),
    });
    renderApp("/experiments/exp1");
    const panel = await region("Configurations");
    const rows = () => within(panel).getAllByRole("row").slice(1);
    expect(rows()).toHaveLength(10);
    expect(rows()[0]).toHaveTextContent(best);
    await userEvent.click(within(panel).getByRole("button", { name: "Show all 200" }));
    expect(rows()).toHaveLength(200);
    expect(rows().at(-1)).toHaveTextContent(/^1–/);
    await userEvent.click(within(panel).getByRole("button", { name: "Show the first 10" }));
    await userEvent.click(within(panel).getByRole("button", { name: "Learning rate" }));
    expect(rows()).toHaveLength(10);
    expect(rows()[0]).toHaveTextContent(/^200/);
  });

  it("says every figure in a sentence and as a table", async () => {
    const { configurations } = analysis();
    const sized = configurations.map((one) => ({ ...one, peak_memory_bytes: estimate(one.index + 1), pareto: true }));
    const made = analysis({ configurations: sized, fits: [fit()], effects: [effect(), effect({ second: "tensor" })] });
    mockApi({ "GET /api/v1/experiments/exp1/analysis": () => ok(experimentAnalysis({ analysis: made })) });
    renderApp("/experiments/exp1");
    const names = ["Scaling efficiency", "Step time split", "Loss", "Heat map", "Parallel coordinates"];
    for (const name of [...names, "Laws of scaling", "Pareto front", "Differences"]) {
      const panel = await region(name);
      expect(within(panel).getByRole("img").getAttribute("aria-label")).toMatch(new RegExp(`^${name}: .{20}`));
      fireEvent.click(within(panel).getByRole("button", { name: `${name} as a table` }));
      expect(within(panel).getAllByRole("row").length).toBeGreaterThan(2);
    }
  });

  it("keeps what a figure shows in the URL", async () => {
    mockApi();
    const { router } = renderApp("/experiments/exp1");
    await userEvent.click(within(await region("Loss")).getByRole("radio", { name: "Time" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ by: "seconds" }));
  });

  it("does not let a diverging run flatten the other losses: the axis is a log one, until it is switched", async () => {
    const [one, other] = analysis().series;
    const series = [
      { ...one!, losses: [2, 1] },
      { ...other!, losses: [2, 1e9] },
    ];
    mockApi({
      "GET /api/v1/experiments/exp1/analysis": () => ok(experimentAnalysis({ analysis: analysis({ series }) })),
    });
    const { router } = renderApp("/experiments/exp1");
    const panel = await region("Loss");
    const log = within(panel).getByRole("switch", { name: "Log scale" });
    expect(log).toBeChecked();
    const heights = () =>
      [...within(panel).getByRole("img").querySelectorAll("path")].map((path) => heightOf(path.getAttribute("d")!));
    expect(Math.min(...heights())).toBeGreaterThan(5);
    await userEvent.click(log);
    await waitFor(() => expect(router.state.location.search).toEqual({ log: false }));
    expect(Math.min(...heights())).toBeLessThan(1);
  });

  it("says when trials have ended since, and includes them", async () => {
    const counts = trialCounts({ total: 8, completed: 6, running: 1, waiting: 1 });
    const seen = mockApi({
      "GET /api/v1/experiments/exp1": () => ok(experiment({ trials: counts })),
      "POST /api/v1/experiments/exp1/analyze": () => {
        const { analysis, ...made } = experimentAnalysis();
        return ok({ ...made, analysis: { ...analysis, completed: 6, ended: 6 } });
      },
    });
    renderApp("/experiments/exp1");
    expect(await screen.findByText("2 trials ended since this analysis was made.")).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Include them" }));
    await waitFor(() => expect(screen.queryByText(/ended since this analysis/)).toBeNull());
    expect(seen.filter(({ method }) => method === "POST")).toHaveLength(1);
  });

  it("is analyzed by itself once a trial has completed, and says why where it cannot be", async () => {
    const seen = mockApi({
      "GET /api/v1/experiments/exp1": () => ok(experiment({ analyzed_at: null })),
      "POST /api/v1/experiments/exp1/analyze": () => problem(503, "overloaded", "Too many readers."),
    });
    renderApp("/experiments/exp1");
    expect(await screen.findByText(/Not analyzed: Too many readers/)).toBeVisible();
    expect(await region("Interpretation")).toHaveTextContent("Not analyzed yet");
    expect(seen.filter(({ method }) => method === "POST")).toHaveLength(1);
  });

  it("lists the trials with their states and reasons", async () => {
    const refused = trial({ index: 1, state: "refused", job: null, refusal: "tensor=3 does not divide 4 heads" });
    mockApi({ "GET /api/v1/experiments/exp1/trials": () => ok(page([trial(), refused])) });
    renderApp("/experiments/exp1?tab=trials");
    const table = await screen.findByRole("table", { name: "Trials" });
    expect(within(table).getByRole("row", { name: /ddp-versus-fsdp-0/ })).toHaveTextContent("100 / 100");
    expect(within(table).getByRole("row", { name: /refused/ })).toHaveTextContent("tensor=3 does not divide 4 heads");
    expect(screen.getByRole("link", { name: "Jobs of all trials" })).toHaveAttribute("href", "/jobs?experiment=exp1");
  });
});

describe("control of an experiment", () => {
  it("names the loss before it cancels, and does nothing if one thinks better of it", async () => {
    let state: "running" | "cancelled" = "running";
    const seen = mockApi({
      "GET /api/v1/experiments/exp1": () => ok(experiment({ state })),
      "DELETE /api/v1/experiments/exp1": () => {
        state = "cancelled";
        return ok(experiment({ state }));
      },
    });
    renderApp("/experiments/exp1?tab=spec");
    await userEvent.click(await screen.findByRole("button", { name: "Cancel experiment" }));
    const dialog = await screen.findByRole("dialog", { name: "Cancel ddp-versus-fsdp?" });
    expect(dialog).toHaveTextContent(
      "1 trial under way will be cancelled, with what it has trained; 2 trials will never start. The results of 4 trials that ended are kept.",
    );
    expect(seen.some(({ method }) => method === "DELETE")).toBe(false);
    await userEvent.click(within(dialog).getByRole("button", { name: "Cancel experiment" }));
    expect(await screen.findByText("cancelled")).toBeVisible();
  });

  it("pauses, and shows why it could not", async () => {
    mockApi({ "PUT /api/v1/experiments/exp1/pause": () => problem(409, "not_running", "It is not running.") });
    renderApp("/experiments/exp1?tab=spec");
    await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
    const dialog = await screen.findByRole("dialog", { name: "Pause ddp-versus-fsdp?" });
    expect(dialog).toHaveTextContent("1 running trial will save a checkpoint, pause, and free its slots.");
    await userEvent.click(within(dialog).getByRole("button", { name: "Pause experiment" }));
    expect(await within(dialog).findByRole("alert")).toHaveTextContent("It is not running.");
  });
});
