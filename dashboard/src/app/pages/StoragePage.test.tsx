import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { job, storage } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

describe("the storage page", () => {
  it("says what is stored, what is kept, and which jobs are the largest", async () => {
    mockApi();
    renderApp("/storage");
    const stored = await screen.findByRole("region", { name: "Stored data" });
    await waitFor(() => expect(stored).toHaveTextContent("Raw points: 390.6 KiB"));
    expect(screen.getByRole("region", { name: "Retention" })).toHaveTextContent("PACELINE_KEEP_POINTS_DAYS");
    expect(screen.getByRole("link", { name: "gpt-old" })).toBeVisible();
    expect(screen.queryByRole("button", { name: "Delete the data of gpt-stdlib" })).toBeNull();
  });

  it("deletes an ended job's data once the loss is named and confirmed", async () => {
    const seen = mockApi({
      "DELETE /api/v1/training/jobs/job2/data": () => ok({ job_id: "job2", state: "removing" }, 202),
    });
    renderApp("/storage");
    await userEvent.click(await screen.findByRole("button", { name: "Delete the data of gpt-old" }));
    const dialog = await screen.findByRole("dialog", { name: "Delete the data of gpt-old?" });
    expect(dialog).toHaveTextContent(
      "points, curves and log lines (148.4 KiB), traces, gradients, media and files of gpt-old are deleted for good",
    );
    await userEvent.click(within(dialog).getByRole("checkbox", { name: "Delete its checkpoints as well" }));
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete data" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const sent = seen.filter(({ method }) => method === "DELETE");
    expect(sent.map(({ url }) => url.searchParams.get("checkpoints"))).toEqual(["true"]);
  });
});

describe("what other pages say about storage", () => {
  it("warns everywhere while the coordinator's disk is nearly full", async () => {
    mockApi({
      "GET /api/v1/cluster/storage": () =>
        ok(
          storage({
            disk: { free_bytes: 1024 ** 3, total_bytes: 100 * 1024 ** 3, low_bytes: 2 * 1024 ** 3, low: true },
          }),
        ),
    });
    renderApp("/jobs");
    expect(await screen.findByRole("alert")).toHaveTextContent("nearly full: 1.0 GiB free, the watermark is 2.0 GiB");
  });

  it.each([
    ["removed" as const, "The log was deleted"],
    ["removing" as const, "The log is being deleted"],
  ])(
    "tells on the page of a job whose data is %s which user asked for it, also in place of its log",
    async (state, title) => {
      const removal = {
        job_id: "job1",
        state,
        asked_by: "ada",
        asked_at: "2026-11-20T09:00:00Z",
        checkpoints: false,
        removed_at: "2026-11-20T09:01:00Z",
        removed_bytes: 5,
      };
      mockApi({
        "GET /api/v1/training/jobs/job1": () => ok(job({ state: "completed", data_removal: removal })),
        "GET /api/v1/training/jobs/job1/logs": () =>
          ok({ items: [], next_after: 0, next_before: null, at_end: true, complete: true, arriving: false }),
      });
      renderApp("/jobs/job1?tab=logs");
      const logs = await screen.findByRole("region", { name: "Logs" });
      expect(await within(logs).findByText(title)).toBeVisible();
      expect(logs).not.toHaveTextContent("without printing anything");
      expect(await screen.findByRole("region", { name: "Data deleted" })).toHaveTextContent("ada requested it");
    },
  );
});
