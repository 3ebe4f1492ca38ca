import { act, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { keys } from "@/lib/keys";
import type { Node } from "@/lib/types";
import { job, node, page } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const invitation = {
  token: "t",
  command: "paceline worker --token t",
  expires_at: "2026-11-20T10:00:00Z",
  warning: null,
};
const invite = () => ok(invitation, 201);

describe("adding a node", () => {
  it("waits for a new one, not for one that was there, and says when it joined", async () => {
    let nodes: Node[] = [node()];
    mockApi({ "GET /api/v1/cluster/nodes": () => ok(page(nodes)), "POST /api/v1/cluster/nodes": invite });
    const { client } = renderApp("/cluster?add=true");
    expect(await screen.findByText("paceline worker --token t")).toBeVisible();
    expect(screen.getByText(/Waiting for the node to join/)).toBeVisible();
    nodes = [node(), node({ id: "n2", name: "node-b", slots: [] })];
    await act(() => client.invalidateQueries({ queryKey: keys.nodes }));
    expect(await screen.findByText(/is getting ready/)).toHaveTextContent("node-b");
    nodes = [node(), node({ id: "n2", name: "node-b" })];
    await act(() => client.invalidateQueries({ queryKey: keys.nodes }));
    expect(await screen.findByText(/joined with 1 slot\./)).toHaveTextContent("node-b");
  });

  it("does not offer a loopback address to another machine", async () => {
    const warning = "http://127.0.0.1:8000 is this coordinator's own loopback address";
    mockApi({ "POST /api/v1/cluster/nodes": () => ok({ ...invitation, warning }, 201) });
    renderApp("/cluster?add=true");
    expect(await screen.findByRole("alert")).toHaveTextContent(warning);
    expect(screen.getByText(/Run this on the coordinator's own machine/)).toBeVisible();
    expect(screen.queryByText(/Run this on the new machine/)).toBeNull();
  });
});

describe("removing a node", () => {
  it("names the jobs that lose their ranks before it removes", async () => {
    const busy = node({ slots: [{ index: 0, job_id: job().id, job_name: "gpt-stdlib", rank: 0 }] });
    const seen = mockApi({
      "GET /api/v1/cluster/nodes": () => ok(page([busy])),
      "DELETE /api/v1/cluster/nodes/n1": () => ok(busy, 202),
    });
    renderApp("/cluster");
    await userEvent.click(await screen.findByRole("button", { name: "Actions for node-a" }));
    await userEvent.click(await screen.findByRole("menuitem", { name: "Remove now" }));
    expect(await screen.findByRole("dialog")).toHaveTextContent(
      "1 job (gpt-stdlib) loses its ranks on this node at once",
    );
    await userEvent.click(screen.getByRole("button", { name: "Remove now" }));
    expect(seen.find(({ method }) => method === "DELETE")?.url.searchParams.get("force")).toBe("true");
  });
});
