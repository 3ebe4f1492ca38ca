import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { checkpoint, job, page } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const listed = {
  ...checkpoint(),
  job_name: "gpt-stdlib",
  job_state: "failed",
  created_by: "admin",
  created_by_id: "u1",
};

describe("the checkpoints of all jobs", () => {
  it("restores from one, into its own job too, and opens the job", async () => {
    const seen = mockApi({
      "GET /api/v1/checkpoints": () => ok(page([listed])),
      "POST /api/v1/checkpoints/c1/restore": () => ok(job({ state: "queued" })),
    });
    const { router } = renderApp("/checkpoints");
    expect(await screen.findByRole("link", { name: "gpt-stdlib" })).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Restore from step 100" }));
    const dialog = await screen.findByRole("dialog");
    await userEvent.click(within(dialog).getByRole("radio", { name: "gpt-stdlib" }));
    await userEvent.click(within(dialog).getByRole("button", { name: "Set gpt-stdlib back" }));
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/job1"));
    expect(seen.find(({ method }) => method === "POST")?.body).toMatchObject({ in_place: true });
  });

  it("starts one job for two clicks", async () => {
    const seen = mockApi({
      "GET /api/v1/checkpoints": () => ok(page([listed])),
      "POST /api/v1/checkpoints/c1/restore": () => ok(job({ state: "queued" })),
    });
    const { router } = renderApp("/checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Restore from step 100" }));
    const start = within(await screen.findByRole("dialog")).getByRole("button", { name: "Start job" });
    fireEvent.click(start);
    fireEvent.click(start);
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/job1"));
    expect(seen.filter(({ method }) => method === "POST")).toHaveLength(1);
  });

  it("searches by job, and says when there is nothing", async () => {
    const seen = mockApi({
      // Of a part of the name, which is asked for where the typing takes long, there is one.
      "GET /api/v1/checkpoints": ({ url }) => ok(page(url.searchParams.get("q") === "other" ? [] : [listed])),
    });
    renderApp("/checkpoints");
    await userEvent.type(await screen.findByLabelText("Search checkpoints by job"), "other");
    expect(await screen.findByText("No job of that name has a checkpoint")).toBeVisible();
    expect(seen.findLast(({ path }) => path === "/api/v1/checkpoints")?.url.searchParams.get("q")).toBe("other");
  });
});
