import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import {
  job,
  jobGradients,
  parameterGradients,
  rankGradient,
  requestedGradients,
  stepGradients,
} from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const ONE = "/api/v1/training/jobs/job1";

function recording(routes: Routes = {}) {
  return mockApi({
    [`GET ${ONE}`]: () => ok(job({ spec: { ...job().spec!, gradients: { steps: [5], every: 10 } } as never })),
    [`GET ${ONE}/gradients`]: () => ok(jobGradients([5, 10])),
    [`GET ${ONE}/gradients/5`]: () => ok(stepGradients(5)),
    [`GET ${ONE}/gradients/10`]: () => ok(stepGradients(10)),
    ...routes,
  });
}

function show(search = "") {
  return renderApp(`/jobs/job1?tab=performance${search}`);
}

async function rowOf(name: string) {
  const table = await screen.findByRole("table", { name: "Gradients by parameter" });
  return within(table).getByText(name).closest("tr")!;
}

describe("the gradients of a job", () => {
  it("is not on the page of a job that has ended and recorded none", async () => {
    const seen = mockApi({ [`GET ${ONE}`]: () => ok(job({ state: "completed" })) });
    show();
    await screen.findByRole("region", { name: "Performance" });
    await waitFor(() => expect(seen.some(({ path }) => path === `${ONE}/gradients`)).toBe(true));
    expect(screen.queryByRole("region", { name: "Gradients" })).toBeNull();
  });

  it("is not on the page of a script, whose steps are its own, and asks for nothing", async () => {
    const seen = mockApi({
      [`GET ${ONE}`]: () => ok(job({ spec: { ...job().spec!, script: { path: "a.py" } } as never })),
    });
    show();
    await screen.findByRole("region", { name: "Performance" });
    expect(screen.queryByRole("region", { name: "Gradients" })).toBeNull();
    expect(seen.filter(({ path }) => path.includes("gradients"))).toEqual([]);
  });

  it("asks all ranks for the next step, with the names that were given, one request at a time", async () => {
    let asked: ReturnType<typeof requestedGradients> | null = null;
    const seen = mockApi({
      [`GET ${ONE}/gradients`]: () => ok(jobGradients([], {}, asked)),
      [`POST ${ONE}/gradients`]: () => ok((asked = requestedGradients({ answered: 1 })), 201),
    });
    show();
    const form = await screen.findByRole("form", { name: "Record the next step" });
    await userEvent.clear(within(form).getByLabelText("Parameters"));
    expect(within(form).getByRole("button", { name: "Record the next step" })).toBeDisabled();
    await userEvent.type(within(form).getByLabelText("Parameters"), "blocks.0.*, *.bias");
    await userEvent.click(within(form).getByLabelText("With snapshots"));
    await userEvent.click(within(form).getByRole("button", { name: "Record the next step" }));
    expect(await within(form).findByText("Waiting for 1 rank")).toBeVisible();
    expect(within(form).getByRole("button", { name: "Record the next step" })).toBeDisabled();
    const sent = seen.find(({ method, path }) => method === "POST" && path === `${ONE}/gradients`)!;
    expect(sent.body).toEqual({ names: ["blocks.0.*", "*.bias"], snapshots: true });
    expect(sent.headers.get("Idempotency-Key")).toBeTruthy();
  });

  it("shows a step that was asked for, also once the job has ended", async () => {
    mockApi({
      [`GET ${ONE}`]: () => ok(job({ state: "completed" })),
      [`GET ${ONE}/gradients`]: () => ok(jobGradients([5], {}, requestedGradients({ state: "done", step: 5 }))),
      [`GET ${ONE}/gradients/5`]: () => ok(stepGradients(5)),
    });
    show();
    expect(await screen.findByText(/^Step 5:/)).toBeVisible();
    expect(screen.queryByRole("form", { name: "Record the next step" })).toBeNull();
  });

  it("says why a request came to nothing", async () => {
    mockApi({
      [`GET ${ONE}/gradients`]: () => ok(jobGradients([], {}, requestedGradients({ state: "missed" }))),
      [`POST ${ONE}/gradients`]: () => problem(409, "job_not_running", "job gpt is resizing"),
    });
    show();
    expect(await screen.findByText("The ranks went apart before they had recorded the step.")).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Record the next step" }));
    expect(await screen.findByText("job gpt is resizing")).toBeVisible();
  });

  it("says which steps the spec chooses while none is recorded", async () => {
    recording({ [`GET ${ONE}/gradients`]: () => ok(jobGradients([])) });
    show();
    expect(await screen.findByText("The spec chooses the steps: 5 and every 10.")).toBeVisible();
  });

  it("shows the newest step, with ranges where ranks differ", async () => {
    const ranks = [rankGradient(0, { norm: 0.25 }), rankGradient(1, { norm: 2, zeros: 4 })];
    const parameters = [parameterGradients("head.weight", { ranks }), parameterGradients("head.bias")];
    recording({ [`GET ${ONE}/gradients/10`]: () => ok(stepGradients(10, { parameters })) });
    show();
    const row = await rowOf("head.weight");
    expect(row).toHaveTextContent("0.25 to 2");
    expect(row).toHaveTextContent("0.0% to 50.0%");
    expect(await rowOf("head.bias")).toHaveTextContent(/0\.50\.0%0$/);
    expect(screen.getByText("Step 10: 2 parameters on 2 ranks, all finite, none zero throughout.")).toBeVisible();
  });

  it("marks what is not finite, what is zero throughout, and what backward has not reached", async () => {
    const parameters = [
      parameterGradients("bad", { ranks: [rankGradient(0), rankGradient(1, { norm: null, nans: 3, infs: 1 })] }),
      parameterGradients("dead", { ranks: [0, 1].map((rank) => rankGradient(rank, { norm: 0, zeros: 8 })) }),
      parameterGradients("idle", { ranks: [], histogram: [], unused: [0, 1] }),
    ];
    recording({ [`GET ${ONE}/gradients/10`]: () => ok(stepGradients(10, { parameters })) });
    show();
    expect(await rowOf("bad")).toHaveTextContent("3 NaN, 1 infinite on rank 1");
    expect(await rowOf("dead")).toHaveTextContent("all zero on rank 0, 1");
    expect(await rowOf("idle")).toHaveTextContent("not reached on rank 0, 1");
    expect(screen.getByText("Step 10: 3 parameters on 2 ranks, 1 not finite, 1 zero throughout.")).toBeVisible();
  });

  it("takes the step of the URL, and puts another choice there", async () => {
    recording();
    const { router } = show("&gradientStep=5");
    await screen.findByText(/^Step 5:/);
    await userEvent.click(screen.getByRole("combobox", { name: "Step of the gradients" }));
    await userEvent.click(await screen.findByRole("option", { name: "Step 10", hidden: true }));
    expect(await screen.findByText(/^Step 10:/)).toBeVisible();
    expect(router.state.location.search).toMatchObject({ gradientStep: 10 });
  });

  it("spreads a parameter out by rank, and its histogram as a table", async () => {
    recording();
    show();
    await userEvent.click(await screen.findByRole("button", { name: "head.weight" }));
    const details = screen.getByRole("region", { name: "Gradient of head.weight" });
    const byRank = within(details).getByRole("table", { name: "Gradient of head.weight by rank" });
    expect(within(byRank).getAllByRole("row")).toHaveLength(3);
    expect(byRank).toHaveTextContent("2 × 4");
    await userEvent.click(within(details).getByRole("button", { name: "Histogram of head.weight as a table" }));
    const byBin = within(details).getByRole("table", { name: "Elements of head.weight by size" });
    expect(
      within(byBin)
        .getAllByRole("row")
        .slice(1)
        .map((row) => row.textContent),
    ).toEqual(["-1e0 to -1e-126", "1e-12 to 1e010"]);
    expect(within(details).queryByRole("img")).toBeNull();
  });

  it("names ranks whose record is missing, and links to snapshots", async () => {
    const ranks = [
      { rank: 0, state: "ready" as const, error: null, snapshot_id: "s0" },
      { rank: 1, state: "failed" as const, error: "the disk is full", snapshot_id: null },
    ];
    recording({ [`GET ${ONE}/gradients/10`]: () => ok(stepGradients(10, { ranks })) });
    show();
    expect(await screen.findByRole("list", { name: "Ranks without a record" })).toHaveTextContent(
      "Rank 1: the disk is full",
    );
    expect(screen.getByRole("link", { name: "rank 0" })).toHaveAttribute("href", `${ONE}/artifacts/s0/content`);
  });

  it("tells of a step that cannot be read", async () => {
    recording({ [`GET ${ONE}/gradients/10`]: () => problem(404, "not_found", "no gradients of step 10 are recorded") });
    show();
    expect(await screen.findByText(/No gradients of step 10 are recorded/)).toBeVisible();
  });
});
