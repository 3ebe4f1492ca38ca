import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { me } from "@/testing/fixtures/cluster";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

test("a guest of a simulated cluster is told so, and cannot sign out", async () => {
  mockApi({ "GET /api/v1/auth/me": () => ok({ ...me, name: "guest", guest: true, mock: true }) });
  renderApp("/jobs");
  expect(await screen.findByText(/You are guest, an admin without signing in/)).toBeInTheDocument();
  expect(screen.queryByRole("button", { name: "Sign out" })).not.toBeInTheDocument();
});

test("a real cluster has no such banner", async () => {
  mockApi({});
  renderApp("/jobs");
  expect(await screen.findByRole("button", { name: "Sign out" })).toBeInTheDocument();
  expect(screen.queryByText(/Simulated cluster/)).not.toBeInTheDocument();
});
