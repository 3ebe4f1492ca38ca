import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { job, plan, planChoice } from "@/testing/fixtures";
import { ok, problem } from "@/testing/mockApi";
import { openForm, sent } from "@/testing/submitForm";

// Labels and texts, not roles: asking for a role computes the style of a few hundred fields, seconds each time.
describe("the submit page", () => {
  it("shows the plan of the document: placement and batch arithmetic", async () => {
    await openForm();
    expect(await screen.findByText("node-a")).toBeVisible();
    expect(screen.getByText("8 micro-batches of 4")).toBeVisible();
    expect(screen.getByText("starts now")).toBeVisible();
  });

  it("submits the edited document with the plan's hash and an idempotency key, then opens the job", async () => {
    const { seen, router, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    fireEvent.change(screen.getByLabelText("Name"), { target: { value: "my-run" } });
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/job1"));
    const [request] = sent(seen);
    expect(request!.body).toMatchObject({ name: "my-run", model: { kind: "gpt" } });
    expect(request!.url.searchParams.get("plan_hash")).toBe("hash-1");
    expect(request!.headers.get("Idempotency-Key")).toMatch(/^[0-9a-f]{32}$/);
  });

  it("submits a script without the parts of the template that a script does not have, and shows none of them", async () => {
    const { seen, submit } = await openForm({ "POST /api/v1/training/jobs": () => ok(job(), 201) });
    fireEvent.click(screen.getByLabelText("Script"));
    expect(await screen.findByDisplayValue("train.py")).toBeVisible();
    for (const part of ["Training", "Optimizer", "Schedule", "Parallelism", "Checkpoint"])
      expect(screen.queryByText(part)).toBeNull();
    for (const field of ["Precision", "Memory per slot", "Spares", "Initial weights", "First step"])
      expect(screen.queryByLabelText(field)).toBeNull();
    fireEvent.click(screen.getByLabelText("Model"));
    const [ofTraining] = await screen.findAllByLabelText("Steps"); // the other is of the trace
    expect(ofTraining).toHaveValue("400");
    fireEvent.click(screen.getByLabelText("Script"));
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(1));
    expect(Object.keys(sent(seen)[0]!.body as object).toSorted()).toEqual(["name", "resources", "script", "version"]);
  });

  it("puts the coordinator's error at its field", async () => {
    const refuse = () =>
      problem(422, "invalid_spec", "not valid", [
        {
          pointer: "/training/global_batch_size",
          code: "inconsistent_spec",
          message: "does not divide",
          hint: "use 34",
        },
      ]);
    const { submit } = await openForm({ "POST /api/v1/training/plan": refuse });
    const field = screen.getByLabelText("Global batch size");
    await waitFor(() => expect(field).toHaveAccessibleDescription(/does not divide; use 34/));
    expect(submit()).toBeDisabled();
  });

  it("says when the cluster changed since the plan, and retries with the same key", async () => {
    const { seen, submit } = await openForm({
      "POST /api/v1/training/jobs": () => problem(409, "plan_changed", "changed"),
    });
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    expect(await screen.findByText(/cluster changed since this plan/)).toBeVisible();
    await waitFor(() => expect(submit()).toBeEnabled());
    await userEvent.click(submit());
    await waitFor(() => expect(sent(seen)).toHaveLength(2));
    const [first, second] = sent(seen).map(({ headers }) => headers.get("Idempotency-Key"));
    expect(first).toBe(second);
  });

  it("says why a job would wait", async () => {
    await openForm({
      "POST /api/v1/training/plan": () =>
        ok(
          plan({
            placement: null,
            pending: {
              code: "no_slots",
              text: "needs 4 slots; the largest available node is b (2 free slots)",
              missing: null,
              nearest_fit: null,
              no_launch: null,
              next_step: "add a node",
            },
          }),
        ),
    });
    expect(await screen.findByText(/Needs 4 slots; the largest available node is b/)).toBeVisible();
    expect(screen.getByText("would wait")).toBeVisible();
  });

  it("shows what a rank needs in memory, part by part, and what that was made from", async () => {
    const memory = {
      parameters: 1024,
      gradients: 2048,
      optimizer: 3072,
      activations: 4096,
      buffers: 0,
      total: 10_240,
      moment: "in the backward of the loss",
      made_from: "micro-batches of 4 samples in fp32",
      note: "more comes on top",
    };
    await openForm({ "POST /api/v1/training/plan": () => ok(plan({ memory_per_rank: memory })) });
    expect(
      await screen.findByRole("img", {
        name: "Parameters 1.0 KiB, Gradients 2.0 KiB, Optimizer 3.0 KiB, Activations 4.0 KiB, Buffers 0 B",
      }),
    ).toBeVisible();
    expect(screen.getByText("10.0 KiB")).toBeVisible();
    expect(
      screen.getByText(
        /Memory peaks in the backward of the loss. Assumes micro-batches of 4 samples in fp32. More comes on top./,
      ),
    ).toBeVisible();
  });

  it("shows what strategy auto chose, and what became of the other plans", async () => {
    await openForm({ "POST /api/v1/training/plan": () => ok(plan({ choice: planChoice() })) });
    const chosen = await screen.findByRole("region", { name: "Plan that was chosen" });
    expect(chosen).toHaveTextContent("Shard 2: a rank needs 2.0 KiB. Nothing else fits.");
    expect(chosen).toHaveTextContent("Requested: parallelism.strategy: auto. Memory budget: 3.0 KiB per rank.");
    const rows = within(chosen)
      .getAllByRole("row")
      .map((row) => row.textContent);
    expect(rows.slice(1)).toEqual([
      "shard 22.0 KiB41 mschosen",
      "replicate 24.0 KiB41 msneeds 4.0 KiB, 1.0 KiB more than there is",
    ]);
    expect(chosen).toHaveTextContent("7 more plans are not listed.");
  });

  it("asks nothing where nothing was edited", async () => {
    const { router } = await openForm();
    fireEvent.click(screen.getByText("Cluster"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/cluster"));
  });
});
