import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { me, page, pool } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const autoscale = {
  device: "cuda" as const,
  idle_seconds: 300,
  cost: 1,
  containers: false,
  discards_checkpoints: false,
  budget_node_hours: 100,
};
const withheld = [{ job_id: "job1", job_name: "big", reason: "lab has used its budget of 100 node-hours" }];
const grown = pool({ slots: 8, autoscale, node_hours: 100.04, withheld, withheld_count: 3 });
const schema = {
  type: "object",
  additionalProperties: false,
  required: ["name", "provider"],
  properties: { name: { type: "string" }, provider: { type: "object" }, max_nodes: { type: "integer", minimum: 1 } },
};
const open = (routes: Routes) => {
  const seen = mockApi({ "GET /api/v1/cluster/pool-schema": () => ok(schema), ...routes });
  renderApp("/cluster");
  return seen;
};
const ONE = "/api/v1/cluster/pools/lab";

describe("pools", () => {
  it("tell their sizes, their budget, and which jobs they do not grow for", async () => {
    open({ "GET /api/v1/cluster/pools": () => ok(page([grown])) });
    const list = within(await screen.findByRole("list", { name: "Pools" }));
    expect(list.getByText("100 of 100")).toBeVisible();
    expect(list.getByText("The budget is used: it grows no more")).toBeVisible();
    expect(list.getByRole("progressbar")).toHaveAttribute("aria-valuenow", "100");
    const jobs = list.getByRole("list", { name: "Jobs that lab does not grow for" });
    expect(jobs).toHaveTextContent("big: lab has used its budget of 100 node-hours");
    expect(jobs).toHaveTextContent("and 2 more");
    expect(within(jobs).getByRole("link", { name: "big" })).toHaveAttribute("href", "/jobs/job1");
  });

  it("that this version cannot read are shown with the reason", async () => {
    const unreadable = "ValidationError: there is no provider quantum";
    open({
      "GET /api/v1/cluster/pools": () => ok(page([pool({ name: "old", provider: {}, unreadable }), grown])),
    });
    expect(await screen.findByRole("alert")).toHaveTextContent(unreadable);
    expect(screen.getByText("unknown")).toBeVisible();
    expect(screen.getByText("100 of 100")).toBeVisible();
  });

  it("tell parts of a node-hour", async () => {
    const small = pool({ autoscale: { ...autoscale, budget_node_hours: 0.5 }, node_hours: 0.42 });
    open({ "GET /api/v1/cluster/pools": () => ok(page([small])) });
    expect(await screen.findByText("0.4 of 0.5")).toBeVisible();
  });

  it("of the same name as a new one stay as they are", async () => {
    const taken = "there is a pool 'lab' already; edit it, or choose another name";
    open({
      "GET /api/v1/cluster/pools": () => ok(page([pool()])),
      [`PUT ${ONE}`]: ({ headers }) =>
        headers.get("If-None-Match") === "*" ? problem(409, "already_exists", taken) : ok(pool()),
    });
    await userEvent.click(await screen.findByRole("button", { name: "New pool" }));
    await userEvent.click(await screen.findByRole("button", { name: "Create pool" }));
    expect(await screen.findByText(/There is a pool 'lab' already; edit it, or choose another name/i)).toBeVisible();
  });

  it("are created from a template, and say what the coordinator refuses", async () => {
    let refuse = true;
    const seen = open({
      "GET /api/v1/cluster/pools": () => ok(page([])),
      [`PUT ${ONE}`]: () =>
        refuse ? problem(422, "invalid_request", "autoscale needs slots: how many each node offers") : ok(pool()),
    });
    await userEvent.click(await screen.findByRole("button", { name: "New pool" }));
    expect(await screen.findByLabelText("Begin with")).toHaveValue("ssh");
    await userEvent.click(await screen.findByRole("button", { name: "Create pool" }));
    expect(await screen.findByText(/Autoscale needs slots: how many each node offers/)).toBeVisible();
    refuse = false;
    await userEvent.click(screen.getByRole("button", { name: "Create pool" }));
    const sent = seen.filter(({ method }) => method === "PUT").at(-1)!.body;
    expect(sent).toEqual({ name: "lab", provider: { type: "ssh", user: "ada", hosts: ["gpu1.lab", "gpu2.lab"] } });
  });

  it("are deleted with their nodes where that is asked for", async () => {
    const seen = open({
      "GET /api/v1/cluster/pools": () => ok(page([pool()])),
      [`DELETE ${ONE}`]: () => ok(undefined, 204),
    });
    await userEvent.click(await screen.findByRole("button", { name: "Delete lab" }));
    expect(await screen.findByRole("dialog")).toHaveTextContent("It has 2 nodes, so it can only be deleted with them");
    await userEvent.click(screen.getByLabelText("Drain and end its nodes"));
    await userEvent.click(screen.getByRole("button", { name: "Delete pool" }));
    expect(seen.find(({ method }) => method === "DELETE")!.url.searchParams.get("drain")).toBe("true");
  });

  it("are changed by admins alone", async () => {
    open({
      "GET /api/v1/auth/me": () => ok({ ...me, role: "member" }),
      "GET /api/v1/cluster/pools": () => ok(page([pool()])),
    });
    expect(await screen.findByRole("button", { name: "Edit lab" })).toHaveAttribute("aria-disabled", "true");
  });
});
