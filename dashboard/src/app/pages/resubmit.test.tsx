import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

it("a failed job is edited and submitted again by the first button of its header", async () => {
  mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state: "failed", end_reason: "rank_crashed" })) });
  const { router } = renderApp("/jobs/job1");
  const again = await screen.findByRole("link", { name: "Edit and resubmit" });
  expect(again.parentElement!.firstElementChild).toBe(again);
  expect(again).toHaveAttribute("data-variant", "filled");
  await userEvent.click(again);
  await waitFor(() => expect(router.state.location.href).toBe("/jobs/new?from=job1"));
  expect(await screen.findByDisplayValue("gpt-stdlib")).toBeVisible();
});

it("its text has what was chosen, without the fields that are left to the default", async () => {
  const spec = { ...job().spec!, description: "", labels: {} };
  mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state: "failed", spec } as never)) });
  renderApp("/jobs/new?from=job1&view=yaml");
  const text = await screen.findByLabelText("Job spec as YAML");
  expect(text).toHaveTextContent("name: gpt-stdlib");
  expect(text).not.toHaveTextContent(/description|labels/);
});

it.each([
  ["completed", "default"],
  ["cancelled", "default"],
  ["running", null],
] as const)("a job that is %s has that button as %s", async (state, variant) => {
  mockApi({ "GET /api/v1/training/jobs/job1": () => ok(job({ state })) });
  renderApp("/jobs/job1");
  await screen.findByRole("link", { name: "Compare with…" });
  const again = screen.queryByRole("link", { name: "Edit and resubmit" });
  expect(again?.getAttribute("data-variant") ?? null).toBe(variant);
});
