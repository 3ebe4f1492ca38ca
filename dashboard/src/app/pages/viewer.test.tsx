import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { checkpoint, me, page, storage } from "@/testing/fixtures";
import { mockApi, ok, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const REASON = "Your role is viewer: only members and admins may do this.";
const ADMINS = "Your role is viewer: only admins may do this.";
const ROUTES: Routes = {
  "GET /api/v1/auth/me": () => ok({ ...me, user_id: "u9", name: "vera", role: "viewer" }),
  "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint()])),
  "GET /api/v1/cluster/storage": () =>
    ok({ ...storage(), largest_jobs: [{ job_id: "job2", name: "old", state: "failed", bytes: 1, ended: true }] }),
};

describe("a viewer", () => {
  it.each([
    ["/jobs/job1", "Pause", REASON],
    ["/jobs/job1", "Cancel job", REASON],
    ["/jobs/job1?tab=checkpoints", "Restore from step 100", REASON],
    ["/jobs/job1?tab=checkpoints", "Pin the checkpoint of step 100", REASON],
    ["/jobs/job1?tab=checkpoints", "Delete the checkpoint of step 100", REASON],
    ["/jobs/job1?tab=performance", "Record a trace", REASON],
    ["/experiments/exp1", "Analyze again", REASON],
    ["/experiments/exp1", "Cancel experiment", REASON],
    ["/experiments/new", "Start", REASON],
    ["/jobs/new", "Submit", REASON],
    ["/cluster", "Add node", ADMINS],
    ["/cluster", "Actions for node-a", ADMINS],
    ["/storage", "Delete the data of old", REASON],
  ])("at %s is told why %s is out of reach, and pressing it does nothing", async (address, name, reason) => {
    const seen = mockApi(ROUTES);
    renderApp(address);
    const button = await screen.findByRole("button", { name: new RegExp(`^${name}`) });
    expect(button).toHaveAttribute("aria-disabled", "true");
    expect(button).toHaveAccessibleDescription(reason);
    button.focus();
    expect(button).toHaveFocus();
    await userEvent.click(button);
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(screen.queryByRole("menu")).toBeNull();
    expect(seen.filter(({ method, path }) => method !== "GET" && !path.endsWith("/plan"))).toEqual([]);
  });

  it("gets no dialog from an address that adds a node", async () => {
    const seen = mockApi(ROUTES);
    renderApp("/cluster?add=true");
    await screen.findByRole("button", { name: "Add node" });
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(seen.filter(({ method }) => method === "POST")).toEqual([]);
  });
});
