import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { Job } from "@/lib/types";
import { job } from "@/testing/fixtures";
import { mockApi, ok, problem, type Handler } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";
import { sizesOf, whatResizingDoes } from "./resize";

const RESIZE = "PUT /api/v1/training/jobs/job1/resize";

function elastic(part: Partial<Job> = {}): Job {
  const spec = {
    ...job().spec,
    resources: { nodes: 2, slots_per_node: 1, min_nodes: 1, max_nodes: 4 },
    fault_tolerance: { max_restarts: 3, recovery: "close_up", spares: 0 },
  } as Job["spec"];
  return job({ spec, ...part });
}

function restarting(): Job {
  return job({
    spec: { ...job().spec, fault_tolerance: { max_restarts: 3, recovery: "restart", spares: 0 } } as Job["spec"],
  });
}

describe("what resizing does", () => {
  it("is told by what the job does now", () => {
    expect(whatResizingDoes(elastic(), 2)).toBeNull();
    expect(whatResizingDoes(elastic(), 4)).toBe(
      "2 ranks warm up beside the running ones as soon as there are slots, and join after a step. Nothing stops, and no step is lost.",
    );
    expect(whatResizingDoes(elastic({ actual_world_size: 4 }), 4)).toBe(
      "The job has this many ranks already, and keeps them.",
    );
    expect(whatResizingDoes(elastic({ world_size: 4, actual_world_size: 4 }), 2)).toBe(
      "2 ranks leave after a step that all ranks have finished. The others continue. No step is lost. It may grow up to 4 nodes while slots are spare.",
    );
    expect(whatResizingDoes(elastic(), 1)).toBe(
      "1 rank leaves after a step that all ranks have finished. The others continue. No step is lost.",
    );
    expect(whatResizingDoes(elastic({ state: "paused" }), 3)).toBe("The job starts with 3 ranks when it runs next.");
    expect(whatResizingDoes(restarting(), 3)).toContain("saves a checkpoint and stops. It continues with 3 ranks");
  });

  it("starts a script again, within what its spec allows", () => {
    const spec = {
      ...elastic().spec,
      script: { path: "train.py" },
      resources: { nodes: 4, slots_per_node: 1, min_nodes: 2, max_nodes: null },
    } as unknown as Job["spec"];
    expect(sizesOf(elastic({ spec, world_size: 4 }))).toEqual({ unit: "nodes", now: 4, least: 2, most: 4, slots: 1 });
    expect(whatResizingDoes(elastic({ spec, world_size: 4 }), 3)).toBe(
      "The ranks get SIGTERM and time to save. The job restarts with 3 ranks as soon as there are slots.",
    );
  });

  it("counts in nodes, each with its slots", () => {
    const spec = {
      ...job().spec,
      resources: { nodes: 2, slots_per_node: 4, spread: false, tolerations: [] },
      fault_tolerance: elastic().spec?.fault_tolerance ?? job().spec.fault_tolerance,
    };
    expect(sizesOf(elastic({ spec, world_size: 8 }))).toMatchObject({ now: 2, least: 1, slots: 4 });
    expect(whatResizingDoes(elastic({ spec, world_size: 8, actual_world_size: 8 }), 3)).toContain("4 ranks warm up");
  });
});

/** A job that asks for slots. */
function anywhere(): Job {
  const spec = { ...elastic().spec, resources: { slots: 6, min_slots: 2, max_slots: 8 } } as Job["spec"];
  return elastic({ spec, world_size: 6, actual_world_size: 6 });
}

async function openDialog() {
  renderApp("/jobs/job1?tab=spec");
  await userEvent.click(await screen.findByRole("button", { name: "Resize" }));
  return screen.findByRole("dialog", { name: "Resize gpt-stdlib" });
}

async function ask(dialog: HTMLElement, nodes: number) {
  const field = within(dialog).getByRole("textbox", { name: "Nodes" });
  await userEvent.clear(field);
  await userEvent.type(field, String(nodes));
  await userEvent.click(within(dialog).getByRole("button", { name: `Resize to ${nodes} nodes` }));
}

function withResize(answer: Handler, current: () => Job = elastic) {
  return mockApi({ "GET /api/v1/training/jobs/job1": () => ok(current()), [RESIZE]: answer });
}

describe("the resize control", () => {
  it("says what will happen, then asks for it with the revision that it saw", async () => {
    const seen = withResize(() => ok(elastic({ world_size: 4 })));
    const dialog = await openDialog();
    expect(dialog).toHaveTextContent("1 to 4, with 1 rank each");
    expect(within(dialog).getByRole("button", { name: "Resize to 2 nodes" })).toBeDisabled();
    await ask(dialog, 4);
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const put = seen.find(({ method }) => method === "PUT")!;
    expect([put.body, put.headers.get("If-Match")]).toEqual([{ nodes: 4 }, '"7"']);
  });

  it("counts in slots where the job does", async () => {
    expect(sizesOf(anywhere())).toEqual({ unit: "slots", now: 6, least: 2, most: 8, slots: 1 });
    expect(whatResizingDoes(anywhere(), 4)).toContain("2 ranks leave");
    const seen = withResize(() => ok(anywhere()), anywhere);
    const dialog = await openDialog();
    expect(dialog).toHaveTextContent("2 to 8, a rank for each");
    const field = within(dialog).getByRole("textbox", { name: "Slots" });
    await userEvent.clear(field);
    await userEvent.type(field, "4");
    await userEvent.click(within(dialog).getByRole("button", { name: "Resize to 4 slots" }));
    await waitFor(() => expect(seen.find(({ method }) => method === "PUT")?.body).toEqual({ slots: 4 }));
  });

  it("asks again with the fresh revision when only progress had moved it", async () => {
    let revision = 7;
    const seen = withResize(
      ({ headers }) => {
        if (headers.get("If-Match") === '"8"') return ok(elastic());
        revision = 8;
        return problem(412, "precondition_failed", "changed");
      },
      () => elastic({ revision }),
    );
    await ask(await openDialog(), 3);
    await waitFor(() =>
      expect(seen.filter(({ method }) => method === "PUT").map(({ headers }) => headers.get("If-Match"))).toEqual([
        '"7"',
        '"8"',
      ]),
    );
  });

  it("shows why it was refused, and stays", async () => {
    withResize(() =>
      problem(409, "cannot_resize", "nodes=3: 2 micro-batches cannot be shared out over 3 ranks; use 2 or fewer"),
    );
    const dialog = await openDialog();
    await ask(dialog, 3);
    expect(await within(dialog).findByRole("alert")).toHaveTextContent("use 2 or fewer");
  });

  it("is not offered for what cannot be resized", async () => {
    mockApi({ "GET /api/v1/training/jobs/job1": () => ok(elastic({ can_resize: false })) });
    renderApp("/jobs/job1?tab=spec");
    await screen.findByRole("button", { name: "Cancel job" });
    expect(screen.queryByRole("button", { name: "Resize" })).toBeNull();
  });
});
