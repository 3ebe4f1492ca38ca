import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { curve, generation, heatmap, job, metrics } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const NAMES = ["loss", "eval_loss", "learning_rate", "step_seconds", "forward_seconds"];
const MAP = "GET /api/v1/metrics/jobs/job1/heatmap";

/** A job with these ranks; returns the names of the metrics that its heat map was asked for. */
function serving(part: Parameters<typeof job>[0] = { world_size: 4 }): () => (string | null)[] {
  const seen = mockApi({
    "GET /api/v1/training/jobs/job1": () => ok(job(part)),
    "GET /api/v1/metrics/jobs/job1": () =>
      ok(metrics({ names: NAMES, curves: NAMES.map((name) => ({ ...curve(), name })) })),
    [MAP]: ({ url }) => ok(heatmap([[0.1], [0.3]], { name: url.searchParams.get("name")! })),
  });
  return () => {
    const names = seen.filter(({ path }) => path.endsWith("/heatmap")).map(({ url }) => url.searchParams.get("name"));
    return [...new Set(names)]; // the map of a job at work is asked for again from time to time
  };
}

async function openMenu(title: string) {
  const chart = await screen.findByRole("region", { name: `${title} chart` });
  await userEvent.click(within(chart).getByRole("button", { name: `Actions for ${title}` }));
  await screen.findByRole("menuitem", { name: "Download CSV", hidden: true });
}

const entries = () =>
  screen.queryAllByRole("menuitem", { name: /^By rank/, hidden: true }).map(({ textContent }) => textContent);

const choose = async (name: string) => userEvent.click(await screen.findByRole("menuitem", { name, hidden: true }));

const heatMap = () => screen.findByRole("region", { name: "Heat map" });

describe("a curve's menu", () => {
  it("leads to the same metric of every rank, at the same steps, and the browser's back returns", async () => {
    const asked = serving();
    const { router } = renderApp("/jobs/job1?from=1&to=2");
    await openMenu("Learning rate");
    await choose("By rank");
    expect(await within(await heatMap()).findByRole("combobox", { name: /^Metric/ })).toHaveValue("Learning rate");
    expect(router.state.location.search).toEqual({ from: 1, to: 2, tab: "ranks", measure: "learning_rate" });
    await waitFor(() => expect(asked()).toEqual(["learning_rate"]));
    await waitFor(() => expect(screen.getByRole("tab", { name: "Ranks" })).toHaveFocus());
    router.history.back();
    await screen.findByRole("region", { name: "Learning rate chart" });
    expect(router.state.location.search).toEqual({ from: 1, to: 2 });
  });

  it("has an entry for each metric of its chart", async () => {
    serving();
    const { router } = renderApp("/jobs/job1");
    await openMenu("Loss");
    expect(entries()).toEqual(["By rank: Loss", "By rank: Eval loss"]);
    await choose("By rank: Eval loss");
    await heatMap();
    expect(router.state.location.search).toMatchObject({ measure: "eval_loss" });
  });

  it("leads from the parts of a step to the time without waiting", async () => {
    serving();
    const { router } = renderApp("/jobs/job1");
    await openMenu("Step time");
    await choose("By rank");
    await heatMap();
    expect(router.state.location.search).toMatchObject({ measure: "busy_seconds" });
  });

  it("has no such entry where there was only ever one rank", async () => {
    serving({ world_size: 1, generations: [generation({ world_size: 1 })] });
    renderApp("/jobs/job1");
    await openMenu("Learning rate");
    expect(entries()).toEqual([]);
  });

  it("has it where there is one rank left of several, as the tab has its heat map", async () => {
    serving({ world_size: 1, generations: [generation({ world_size: 4 })] });
    renderApp("/jobs/job1");
    await openMenu("Learning rate");
    await choose("By rank");
    expect(await heatMap()).toBeVisible();
  });
});

describe("the address of a heat map", () => {
  it("has its metric and the ranks that have a line", async () => {
    const asked = serving();
    const { router } = renderApp("/jobs/job1?tab=ranks&measure=forward_seconds&lines=nodes");
    const panel = await heatMap();
    expect(await within(panel).findByRole("radio", { name: "One per node" })).toBeChecked();
    expect(asked()).toEqual(["forward_seconds"]);
    await userEvent.click(within(panel).getByRole("radio", { name: /^All ranks/ }));
    await waitFor(() => expect(router.state.location.search).toMatchObject({ lines: "all" }));
    await userEvent.click(within(panel).getByRole("combobox", { name: "Metric of the heat map" }));
    await userEvent.click(await screen.findByRole("option", { name: "Loss", hidden: true }));
    await waitFor(() => expect(asked().at(-1)).toBe("loss"));
    expect(router.state.location.search).toEqual({ tab: "ranks", measure: "loss", lines: "all" });
  });

  it("may name a metric that no rank has reported: the panel says so, and offers the others", async () => {
    const asked = serving();
    renderApp("/jobs/job1?tab=ranks&measure=recall");
    const panel = await heatMap();
    expect(panel).toHaveTextContent("No rank has reported this metric. Choose another one above.");
    const metric = within(panel).getByRole("combobox", { name: "Metric of the heat map" });
    expect(metric).toHaveValue("recall");
    await userEvent.click(metric);
    await userEvent.click(await screen.findByRole("option", { name: "Forward", hidden: true }));
    expect(await within(panel).findByRole("img", { name: /^Heat map/ })).toBeVisible();
    expect(asked()).toEqual(["forward_seconds"]);
  });
});
