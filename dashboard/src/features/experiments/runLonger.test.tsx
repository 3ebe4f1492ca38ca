import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { experiment, job, page, trial } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

describe("running the best trial longer", () => {
  const EXTEND = "POST /api/v1/experiments/exp1/extend";
  const longer = () => screen.findByRole("button", { name: "Run the best one longer" });
  const dialog = () => screen.findByRole("dialog", { name: "Run trial 1 longer" });
  const best = () => ok(page([trial({ index: 1 })]));

  it("asks how far to train, and leads to the new job", async () => {
    const seen = mockApi({
      "GET /api/v1/experiments/exp1/trials": best,
      [EXTEND]: () => ok(job({ id: "job9", name: "ddp-versus-fsdp-1-longer" }), 201),
    });
    renderApp("/experiments/exp1?tab=trials");
    await userEvent.click(await longer());
    expect(await dialog()).toHaveTextContent("It has done 100, which count.");
    expect(within(await dialog()).getByRole("button", { name: "Start job" })).toBeDisabled();
    await userEvent.type(within(await dialog()).getByRole("textbox", { name: "Train to step" }), "1e3{Enter}");
    const link = await within(await dialog()).findByRole("link", { name: "ddp-versus-fsdp-1-longer" });
    expect(link).toHaveAttribute("href", "/jobs/job9");
    const sent = seen.filter(({ method }) => method === "POST");
    expect(sent.map(({ body }) => body)).toEqual([{ trial: 1, steps: 1000 }]);
    expect(sent[0]!.headers.get("Idempotency-Key")).toMatch(/^[0-9a-f]{32}$/);
  });

  it("takes whole numbers only, shows why it was refused, and sends a retry under the same key", async () => {
    const refusal = "job ddp-versus-fsdp-1 has no checkpoint to go on from";
    const seen = mockApi({ [EXTEND]: () => problem(409, "checkpoint_not_usable", refusal) });
    renderApp("/experiments/exp1?tab=trials");
    await userEvent.click(await longer());
    const field = within(await dialog()).getByRole("textbox", { name: "Train to step" });
    await userEvent.type(field, "1.5{Enter}");
    expect(field).toBeInvalid();
    await userEvent.clear(field);
    await userEvent.type(field, "500{Enter}");
    expect(await within(await dialog()).findByRole("alert")).toHaveTextContent(refusal);
    await userEvent.click(within(await dialog()).getByRole("button", { name: "Start job" }));
    const keysSent = () =>
      seen.filter(({ method }) => method === "POST").map(({ headers }) => headers.get("Idempotency-Key"));
    await waitFor(() => expect(keysSent()).toHaveLength(2));
    expect(new Set(keysSent()).size).toBe(1);
  });

  it("waits for a first result", async () => {
    mockApi({ "GET /api/v1/experiments/exp1": () => ok(experiment({ best_trial: null, best_metric: null })) });
    renderApp("/experiments/exp1?tab=trials");
    expect(await longer()).toHaveAttribute("aria-disabled", "true");
    expect(await longer()).toHaveAccessibleDescription("No trial has a result yet.");
  });
});
