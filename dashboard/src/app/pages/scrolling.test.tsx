import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, onTestFinished, vi } from "vitest";
import { curve, heatmap, job, metrics, node, page } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

/** Notes from now on whether the page is scrolled. */
function watchScrolling() {
  const scrolled = vi.spyOn(window, "scrollTo").mockImplementation(() => {});
  onTestFinished(() => scrolled.mockRestore());
  return scrolled;
}

it("stays where it is when the heat map of a job shows other lines", async () => {
  mockApi({
    "GET /api/v1/training/jobs/job1": () => ok(job({ world_size: 2 })),
    "GET /api/v1/metrics/jobs/job1": () =>
      ok(metrics({ names: ["step_seconds"], curves: [curve({ name: "step_seconds" })] })),
    "GET /api/v1/metrics/jobs/job1/heatmap": () => ok(heatmap([[0.1], [0.3]])),
  });
  const { router } = renderApp("/jobs/job1?tab=ranks");
  const panel = await screen.findByRole("region", { name: "Heat map" });
  const all = await within(panel).findByRole("radio", { name: /^All ranks/ });
  const scrolled = watchScrolling();
  await userEvent.click(all);
  await waitFor(() => expect(router.state.resolvedLocation?.search).toEqual({ tab: "ranks", lines: "all" }));
  expect(scrolled).not.toHaveBeenCalled();
});

it("stays where it is when the card of a node is opened", async () => {
  const nodes = Array.from({ length: 13 }, (_, at) => node({ id: `n${at}`, name: `node-${at}` }));
  mockApi({ "GET /api/v1/cluster/nodes": () => ok(page(nodes)) });
  const { router } = renderApp("/cluster");
  const name = await screen.findByRole("button", { name: "node-12" });
  const scrolled = watchScrolling();
  await userEvent.click(name);
  await waitFor(() => expect(router.state.resolvedLocation?.search).toEqual({ card: "n12" }));
  expect(scrolled).not.toHaveBeenCalled();
});

it("stays where it is when a job in the list is picked", async () => {
  mockApi();
  const { router } = renderApp("/jobs");
  const [box] = await screen.findAllByRole("checkbox", { name: /^Pick|^Compare|^Select/ });
  const scrolled = watchScrolling();
  await userEvent.click(box!);
  await waitFor(() => expect(router.state.resolvedLocation?.search).toHaveProperty("pick"));
  expect(scrolled).not.toHaveBeenCalled();
});
