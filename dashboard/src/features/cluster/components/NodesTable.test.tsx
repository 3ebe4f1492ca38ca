import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { node, page } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const of = (count: number) =>
  Array.from({ length: count }, (_, index) =>
    node({ id: `n${index}`, name: `node-${index}`, state: index === 40 ? "draining" : "ready" }),
  );
const serving = (count: number) => mockApi({ "GET /api/v1/cluster/nodes": () => ok(page(of(count))) });

describe("the nodes of a large cluster", () => {
  it("are rows that can be searched, each of which opens its card; the URL has all of it", async () => {
    serving(64);
    const { router } = renderApp("/cluster");
    const table = await screen.findByRole("table", { name: "Nodes" });
    expect(within(table).getAllByRole("row")).toHaveLength(65);
    await userEvent.type(screen.getByRole("textbox", { name: "Find nodes" }), "node-4");
    expect(await screen.findByText("11 of 64 nodes")).toBeVisible();
    await userEvent.click(within(table).getByRole("button", { name: "node-42" }));
    const dialog = await screen.findByRole("dialog", { name: "Node node-42" });
    expect(within(dialog).getByRole("article", { name: "Node node-42" })).toHaveTextContent("0free");
    expect(router.state.location.search).toMatchObject({ find: "node-4", card: "n42" });
    await userEvent.click(within(dialog).getByRole("button", { name: "Close" }));
    expect(router.state.location.search).not.toHaveProperty("card");
  });

  it("are those of one state", async () => {
    serving(64);
    renderApp("/cluster?state=draining");
    const table = await screen.findByRole("table", { name: "Nodes" });
    expect(within(table).getByRole("button", { name: "node-40" })).toBeVisible();
    expect(screen.getByText("1 of 64 nodes")).toBeVisible();
  });

  it("are the first twelve on a phone, until all are asked for; the search finds any of them", async () => {
    const wide = window.matchMedia;
    const spy = vi.spyOn(window, "matchMedia").mockImplementation((query) => ({
      ...wide(query),
      matches: query.includes("560px"),
    }));
    onTestFinished(() => spy.mockRestore());
    serving(64);
    renderApp("/cluster");
    const table = await screen.findByRole("table", { name: "Nodes" });
    expect(within(table).getAllByRole("row")).toHaveLength(13);
    expect(screen.getByText("64 nodes")).toBeVisible();
    await userEvent.type(screen.getByRole("textbox", { name: "Find nodes" }), "node-63");
    expect(await within(table).findByRole("button", { name: "node-63" })).toBeVisible();
    await userEvent.clear(screen.getByRole("textbox", { name: "Find nodes" }));
    await userEvent.click(await screen.findByRole("button", { name: "Show all 64" }));
    expect(within(table).getAllByRole("row")).toHaveLength(65);
  });

  it("tell the version of their agents", async () => {
    const versions = { paceline: "0.2.0", torch: "2.13.0" };
    mockApi({ "GET /api/v1/cluster/nodes": () => ok(page([node({ versions })])) });
    renderApp("/cluster");
    expect(await screen.findByRole("article", { name: "Node node-a" })).toHaveTextContent(
      "paceline 0.2.0 · torch 2.13.0",
    );
  });

  it("are cards where they are few", async () => {
    serving(12);
    renderApp("/cluster");
    expect(await screen.findAllByRole("article", { name: /^Node / })).toHaveLength(12);
    expect(screen.queryByRole("table", { name: "Nodes" })).toBeNull();
  });
});
