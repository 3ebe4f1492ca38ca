import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { NodeLaunch } from "@/lib/types";
import { page, pool } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const launch = (part: Partial<NodeLaunch> = {}): NodeLaunch => ({
  id: "l1",
  name: "lab-gpu1",
  pool: "lab",
  provider: "ssh",
  state: "pending",
  wanted: true,
  reason: "installing Paceline and its packages",
  failure: "",
  remedy: "",
  handle: "ssh://ada@gpu1:22/lab-gpu1",
  requested_by: "ada",
  created_at: "2026-11-20T10:00:00Z",
  state_since: "2026-11-20T10:00:00Z",
  command: null,
  ...part,
});

describe("nodes that are to come", () => {
  it("says what one waits for, and why another could not be started, with the way out", async () => {
    const failed = launch({ id: "l2", name: "lab-gpu2", state: "failed", failure: "no route", remedy: "switch it on" });
    const seen = mockApi({
      "GET /api/v1/cluster/launches": () => ok(page([launch(), failed])),
      "DELETE /api/v1/cluster/launches/l2": () => ok(failed, 202),
    });
    renderApp("/cluster");
    const list = await screen.findByRole("list", { name: "Nodes that are to come" });
    expect(within(list).getByText("installing Paceline and its packages")).toBeVisible();
    expect(within(list).getByText(/no route/)).toHaveTextContent("To solve it: switch it on");
    await userEvent.click(screen.getByRole("button", { name: "Dismiss lab-gpu2" }));
    expect(seen.some(({ method, path }) => method === "DELETE" && path.endsWith("/l2"))).toBe(true);
  });
});

describe("launching nodes", () => {
  it("launches nodes of a pool, and shows the commands where people start them", async () => {
    const command = "paceline worker --name lab-x --token t2";
    const seen = mockApi({
      "GET /api/v1/cluster/pools": () => ok(page([pool({ nodes: 1, provider: { type: "manual" } })])),
      "POST /api/v1/cluster/nodes": ({ body }) =>
        (body as { pool?: string }).pool
          ? ok({ launches: [launch({ provider: "manual", command })], warning: null }, 201)
          : ok({ token: "t", command: "paceline worker", expires_at: "2026-11-20T10:00:00Z", warning: null }, 201),
    });
    renderApp("/cluster?add=true");
    await userEvent.click(await screen.findByRole("radio", { name: "Pool" }));
    expect(await screen.findByText("manual: 1 of at most 4 nodes, 1 coming")).toBeVisible();
    const nodes = screen.getByRole("textbox", { name: "Nodes" });
    await userEvent.clear(nodes);
    await userEvent.type(nodes, "2e0");
    await userEvent.click(screen.getByRole("button", { name: "Launch" }));
    expect(await screen.findByText(command)).toBeVisible();
    const sent = seen.find(({ body }) => (body as { pool?: string } | undefined)?.pool === "lab");
    expect(sent?.body).toEqual({ pool: "lab", count: 2 });
  });

  it("sends a host as its parts, and shows why the coordinator refuses it", async () => {
    const seen = mockApi({
      "POST /api/v1/cluster/nodes": ({ body }) =>
        (body as { provider?: unknown }).provider
          ? problem(409, "pool_full", "0 of the hosts of this request have no node yet")
          : ok({ token: "t", command: "paceline worker", expires_at: "2026-11-20T10:00:00Z", warning: null }, 201),
    });
    renderApp("/cluster?add=true");
    await userEvent.click(await screen.findByRole("radio", { name: "SSH host" }));
    await userEvent.type(await screen.findByLabelText(/^Host\b(?! key)/), "ada@gpu1.lab:2222");
    const slots = screen.getByLabelText("Slots");
    await userEvent.type(slots, "1.5");
    expect(slots).toHaveAccessibleDescription(/Must be a whole number from 1 to 64/);
    expect(screen.getByRole("button", { name: "Install and start" })).toBeDisabled();
    await userEvent.clear(slots);
    await userEvent.type(slots, "1e1");
    expect(slots).toHaveValue("1e1");
    await userEvent.click(screen.getByRole("button", { name: "Install and start" }));
    expect(await screen.findByRole("alert")).toHaveTextContent("have no node yet");
    const sent = seen.find(({ body }) => (body as { provider?: unknown } | undefined)?.provider)?.body;
    const hosts = [{ host: "gpu1.lab", user: "ada", port: 2222 }];
    expect(sent).toEqual({ provider: { type: "ssh", hosts }, slots: 10 });
  });
});
