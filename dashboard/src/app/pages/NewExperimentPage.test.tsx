import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { experiment, experimentPlan, job, plan, planned } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const PLAN = "POST /api/v1/experiments/plan";
const readable = job({
  spec: { ...plan().spec, model: { kind: "mlp" }, data: { kind: "digits" }, training: { steps: 10 } } as never,
});

const SPEC = {
  version: 1,
  name: "rates",
  job: { model: { kind: "mlp" }, data: { kind: "digits" }, training: { steps: 10 } },
};

describe("a new experiment", () => {
  it("begins from a job, varies a field by its path, counts the trials and starts them", async () => {
    const seen = mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(readable),
      "POST /api/v1/experiments": () => ok(experiment(), 201),
    });
    const { router } = renderApp("/experiments/new?from=job1");
    expect(await screen.findByText("Varies the spec of gpt-stdlib.")).toBeVisible();
    fireEvent.change(screen.getByPlaceholderText("Path, such as optimizer.lr"), {
      target: { value: "optimizer.lr" },
    });
    fireEvent.keyDown(screen.getByPlaceholderText("Path, such as optimizer.lr"), { key: "Enter" });
    fireEvent.change(await screen.findByLabelText("optimizer.lr"), { target: { value: "1e-3, 1e-2" } });
    fireEvent.blur(screen.getByLabelText("optimizer.lr"));
    const varied = { "optimizer.lr": [0.001, 0.01] };
    await waitFor(() =>
      expect(seen.findLast(({ path }) => path.endsWith("/plan"))?.body).toMatchObject({ grid: varied }),
    );
    const panel = await screen.findByRole("region", { name: "Plan" });
    expect(panel).toHaveTextContent("2 min 05 s");
    await userEvent.click(await screen.findByRole("button", { name: "Start 4 trials" }));
    await waitFor(() => expect(router.state.location.pathname).toBe("/experiments/exp1"));
    const sent = seen.find(({ method, path }) => method === "POST" && path === "/api/v1/experiments")!;
    expect(sent.body).toMatchObject({ name: "gpt-stdlib-varied", grid: varied, job: { model: { kind: "mlp" } } });
    expect(sent.headers.get("Idempotency-Key")).toMatch(/^[0-9a-f]{32}$/);
  });

  it("asks before it takes the place of an experiment of its name, and tells what that one loses", async () => {
    const taken = problem(409, "already_exists", "there is an experiment 'rates' of bob in project 'default' already");
    const bob = { kind: "user" as const, id: "u2", name: "bob" };
    const replaces = { id: "exp7", created_by: bob, cancels: 2 };
    let isThere = false;
    const seen = mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(readable),
      [PLAN]: () => ok(experimentPlan(isThere ? { replaces } : {})),
      "POST /api/v1/experiments": ({ headers }) => {
        isThere = true;
        return headers.has("If-None-Match") ? taken : ok(experiment());
      },
    });
    const { router } = renderApp("/experiments/new?from=job1");
    await userEvent.click(await screen.findByRole("button", { name: "Start 4 trials" }));
    const dialog = await screen.findByRole("dialog", { name: "Replace the grid of gpt-stdlib-varied?" });
    await waitFor(() =>
      expect(dialog).toHaveTextContent(
        "It belongs to bob and gets this grid: 2 trials that the grid lacks are cancelled, with what they have trained.",
      ),
    );
    const posts = () => seen.filter(({ method, path }) => method === "POST" && path === "/api/v1/experiments");
    expect(posts().map(({ headers }) => headers.get("If-None-Match"))).toEqual(["*"]);
    await userEvent.click(within(dialog).getByRole("button", { name: "Replace its grid" }));
    await waitFor(() => expect(router.state.location.pathname).toBe("/experiments/exp1"));
    expect(posts().map(({ headers }) => headers.get("If-None-Match"))).toEqual(["*", null]);
  });

  it("gives an experiment that is varied again its grid without a question, unless it gets another name", async () => {
    const seen = mockApi({
      "GET /api/v1/experiments/exp1": () => ok(experiment({ spec: { ...SPEC, grid: { "optimizer.lr": [0.1] } } })),
      "POST /api/v1/experiments": () => problem(503, "busy", "the database is away"),
    });
    renderApp("/experiments/new?again=exp1");
    const start = await screen.findByRole("button", { name: "Start 4 trials" });
    const sent = () => seen.filter(({ method, path }) => method === "POST" && path === "/api/v1/experiments");
    await userEvent.click(start);
    await waitFor(() => expect(sent()).toHaveLength(1));
    await userEvent.type(screen.getByLabelText("Name"), "-2");
    await userEvent.click(await screen.findByRole("button", { name: /^Start/ }));
    await waitFor(() => expect(sent()).toHaveLength(2));
    expect(sent().map(({ headers }) => headers.get("If-None-Match"))).toEqual([null, "*"]);
  });

  it.each([
    ["1e-3, 1e-2, 1e-1", { "optimizer.lr": [0.001, 0.01, 0.1] }],
    ["{backspace}", undefined],
  ])("starts with one click while a field still has the focus: %s", async (keys, grid) => {
    const seen = mockApi({
      "GET /api/v1/experiments/exp1": () => ok(experiment({ spec: { ...SPEC, grid: { "optimizer.lr": [0.1] } } })),
      "POST /api/v1/experiments": () => ok(experiment(), 201),
    });
    const { router } = renderApp("/experiments/new?again=exp1");
    const start = await screen.findByRole("button", { name: "Start 4 trials" });
    await userEvent.type(screen.getByLabelText("optimizer.lr"), keys, {
      initialSelectionStart: 0,
      initialSelectionEnd: 99,
    });
    await userEvent.click(start);
    await waitFor(() => expect(router.state.location.pathname).toBe("/experiments/exp1"));
    const sent = seen.filter(({ method, path }) => method === "POST" && path === "/api/v1/experiments");
    expect(sent.map(({ body }) => (body as { grid?: unknown }).grid)).toEqual([grid]);
  });

  it("starts nothing by a click on what turns out to be wrong", async () => {
    const errors = [{ pointer: "/grid/optimizer.lr", code: "wrong", message: "is not a rate", hint: null, line: null }];
    const seen = mockApi({
      "GET /api/v1/experiments/exp1": () => ok(experiment({ spec: { ...SPEC, grid: { "optimizer.lr": [0.1] } } })),
      [PLAN]: ({ body }) => ok(experimentPlan(JSON.stringify(body).includes('"fast"') ? { errors } : {})),
    });
    renderApp("/experiments/new?again=exp1");
    const start = await screen.findByRole("button", { name: "Start 4 trials" });
    await userEvent.type(screen.getByLabelText("optimizer.lr"), ", fast");
    await userEvent.click(start);
    expect(await screen.findByRole("list", { name: "Problems" })).toHaveTextContent("is not a rate");
    expect(screen.getByRole("button", { name: "Start" })).toBeDisabled();
    expect(seen.some(({ method, path }) => method === "POST" && path === "/api/v1/experiments")).toBe(false);
  });

  it("lists refused configurations with their reasons", async () => {
    const refusal = "tensor=3 does not divide 4 heads; use 1, 2 or 4";
    const configurations = [planned(), planned({ values: { "optimizer.lr": 1 }, refusal })];
    mockApi({ [PLAN]: () => ok(experimentPlan({ refused: 2, configurations })) });
    renderApp("/experiments/new");
    const panel = await screen.findByRole("region", { name: "Plan" });
    expect(await within(panel).findByRole("note")).toHaveTextContent(
      `1 of 2 configurations cannot run and will be listed with the reason:${refusal}`,
    );
    expect(await screen.findByRole("button", { name: "Start 2 trials" })).toBeEnabled();
  });

  it("shows what is wrong at its field, and starts nothing", async () => {
    const errors = [
      {
        pointer: "/grid/optimizer.lr",
        code: "unknown",
        message: "not a field of this job",
        hint: "use optimizer.eps",
        line: null,
      },
    ];
    mockApi({ [PLAN]: () => ok(experimentPlan({ errors })) });
    renderApp("/experiments/new");
    const list = await screen.findByRole("list", { name: "Problems" });
    expect(list).toHaveTextContent("/grid/optimizer.lr not a field of this job; use optimizer.eps");
    expect(screen.getByRole("button", { name: "Start" })).toBeDisabled();
    expect(screen.getByLabelText("optimizer.lr")).toBeInvalid();
  });
});
