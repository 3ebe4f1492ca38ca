import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { page } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

it.each([
  ["/jobs?cursor=abc", "GET /api/v1/training/jobs", "No jobs yet"],
  ["/jobs?status=running&cursor=abc", "GET /api/v1/training/jobs", "No job matches"],
  ["/checkpoints?cursor=abc", "GET /api/v1/checkpoints", "No checkpoints yet"],
  ["/experiments?cursor=abc", "GET /api/v1/experiments", "No experiments yet"],
])("a page that has become empty (%s) does not say that there is nothing at all", async (address, route, nothing) => {
  mockApi({ [route]: () => ok(page([])) });
  const { router } = renderApp(address);
  expect(await screen.findByText("Nothing on this page any more")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "First page" }));
  await waitFor(() => expect(router.state.location.search).not.toHaveProperty("cursor"));
  expect(await screen.findByText(nothing)).toBeVisible();
});
