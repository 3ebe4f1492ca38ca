import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Chart } from "@/lib/types";
import { chart, curve, job, me, metrics } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const chartOf = (title: string) => screen.findByRole("region", { name: `${title} chart` });

/** A job that reports its loss, and a metric and a rate of its own. */
function reporting(routes: Routes = {}) {
  return mockApi({
    "GET /api/v1/metrics/jobs/job1": () =>
      ok(
        metrics({
          names: ["loss", "recall", "images_per_second"],
          curves: [
            curve(),
            curve({ name: "recall", unit: "", last: [0.1, 0.2] }),
            curve({ name: "images_per_second", unit: "", bucket_steps: 10, steps: [9], last: [1], mean: [505] }),
          ],
        }),
      ),
    ...routes,
  });
}

// Compiling the page is no part of what the first test waits for.
beforeAll(() => import("./JobPage"));

beforeEach(() => {
  reporting();
});

/** Charts as the coordinator keeps them. */
function keeping(...first: Chart[]) {
  const kept = { charts: first, conflict: false };
  const CHARTS = "/api/v1/training/charts";
  const seen = reporting({
    [`GET ${CHARTS}`]: () => ok(kept.charts),
    [`POST ${CHARTS}`]: ({ body }) => {
      const made = chart({ ...(body as Partial<Chart>), id: `made${kept.charts.length}` });
      kept.charts = [...kept.charts, made];
      return ok(made, 201);
    },
    [`PUT ${CHARTS}/chart1`]: ({ body, headers }) => {
      const [now] = kept.charts;
      if (headers.get("if-match") !== `"${now!.revision}"`) return problem(412, "precondition_failed", "stale");
      kept.charts = [{ ...now!, ...(body as Partial<Chart>), revision: now!.revision + 1 }];
      return ok(kept.charts[0]);
    },
    [`PUT ${CHARTS}/order`]: ({ body }) => {
      const { ids } = body as { ids: string[] };
      kept.charts = ids.map((id) => kept.charts.find((one) => one.id === id)!);
      return ok(kept.charts);
    },
    [`DELETE ${CHARTS}/chart1`]: () => {
      kept.charts = [];
      return ok(null, 204);
    },
  });
  return { kept, seen };
}

const TOLD =
  "loss: 4 nats at step 2. Min 4 at step 2, max 5 at step 1. recall: 0.2 at step 2. Min 0.1 at step 1, max 0.2 at step 2.";

async function choose(title: string, entry: string) {
  const user = userEvent.setup();
  await user.click(within(await chartOf(title)).getByRole("button", { name: `Actions for ${title}` }));
  await user.click(await screen.findByRole("menuitem", { name: entry, hidden: true }));
  await waitFor(() => expect(screen.queryByRole("menuitem", { hidden: true })).toBeNull()); // the next menu has the same entries
}

describe("the charts of a project", () => {
  it("have several metrics, and are saved for everybody", async () => {
    const { kept } = keeping();
    renderApp("/jobs/job1");
    const user = userEvent.setup();
    await chartOf("Loss");
    await user.click(screen.getByRole("button", { name: "Add chart" }));
    const dialog = await screen.findByRole("dialog", { name: "Add a chart" });
    await user.click(within(dialog).getByRole("combobox", { name: "Metrics" }));
    await user.click(await screen.findByRole("option", { name: "loss", hidden: true }));
    await user.click(await screen.findByRole("option", { name: "recall", hidden: true }));
    await user.click(within(dialog).getByRole("button", { name: "Save chart" }));
    expect(await chartOf("loss, recall")).toHaveTextContent(TOLD);
    expect(kept.charts[0]!.definition).toEqual({ metrics: ["loss", "recall"], runs: [], axis: null, scale: null });
  });

  it("tell who has changed one meanwhile, and keep what was typed", async () => {
    const { kept } = keeping(chart());
    renderApp("/jobs/job1");
    await choose("Quality", "Edit chart");
    const edit = await screen.findByRole("dialog", { name: "Edit Quality" });
    kept.charts = [chart({ revision: 2, updated_by: "bob" })];
    const user = userEvent.setup();
    await user.clear(within(edit).getByRole("textbox", { name: "Title" }));
    await user.type(within(edit).getByRole("textbox", { name: "Title" }), "Mine");
    await user.click(within(edit).getByRole("button", { name: "Save chart" }));
    await waitFor(() => expect(within(edit).getByRole("alert")).toHaveTextContent("bob changed this chart meanwhile."));
    await user.click(within(edit).getByRole("button", { name: "Save chart" }));
    expect(await chartOf("Mine")).toHaveTextContent(TOLD);
    expect(kept.charts[0]!.revision).toBe(3);
  });

  it("are put in another order, and removed once that is confirmed", async () => {
    const { kept } = keeping(chart(), chart({ id: "chart2", name: "Second" }));
    renderApp("/jobs/job1");
    await choose("Second", "Move earlier");
    await waitFor(() => expect(kept.charts.map(({ id }) => id)).toEqual(["chart2", "chart1"]));
    await choose("Quality", "Remove chart");
    const dialog = await screen.findByRole("dialog", { name: "Remove Quality?" });
    await userEvent.click(within(dialog).getByRole("button", { name: "Remove chart" }));
    await waitFor(() => expect(screen.queryByRole("region", { name: "Quality chart" })).toBeNull());
  });

  it("have landmarks of different names where their titles are the same", async () => {
    keeping(chart({ name: "Loss" }), chart({ id: "chart2", name: "Loss" }));
    renderApp("/jobs/job1");
    await chartOf("Loss (3)");
    const names = screen.getAllByRole("region").map((region) => region.getAttribute("aria-label"));
    expect(names.filter((name) => name?.endsWith(" chart")).toSorted()).toEqual(
      ["Loss (2)", "Loss (3)", "Loss", "images_per_second", "recall"].map((title) => `${title} chart`),
    );
  });

  it("are offered those that this browser had alone, once", async () => {
    localStorage.setItem(
      `paceline-charts/${job().project}`,
      JSON.stringify([{ id: "x", title: "Old", names: ["recall"] }]),
    );
    const { kept, seen } = keeping();
    renderApp("/jobs/job1");
    const notice = await screen.findByRole("region", { name: "Charts in this browser" });
    await userEvent.click(within(notice).getByRole("button", { name: "Share with project" }));
    expect(await chartOf("Old")).toBeVisible();
    await waitFor(() => expect(screen.queryByRole("region", { name: "Charts in this browser" })).toBeNull());
    expect(kept.charts.map(({ name }) => name)).toEqual(["Old"]);
    expect(seen.find(({ method }) => method === "POST")!.headers.get("idempotency-key")).toBe("browser-chart-x");
  });

  it("are seen by a viewer, who is told why they cannot be changed", async () => {
    keeping(chart());
    reporting({
      "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer" }),
      "GET /api/v1/training/charts": () => ok([chart()]),
    });
    renderApp("/jobs/job1");
    const user = userEvent.setup();
    await user.click(within(await chartOf("Quality")).getByRole("button", { name: "Actions for Quality" }));
    expect(
      await screen.findByText("Your role is viewer: only members and admins may do this.", {
        ignore: ".visually-hidden",
      }),
    ).toBeInTheDocument();
    expect(screen.queryByRole("menuitem", { name: "Edit chart", hidden: true })).toBeNull();
    expect(screen.getByRole("button", { name: "Add chart", hidden: true })).toHaveAttribute("aria-disabled", "true");
  });
});
