import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { checkpoint, job, page } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

describe("the checkpoints of a job", () => {
  it("names what depends on a checkpoint before deleting it, and confirms it", async () => {
    const seen = mockApi({
      "GET /api/v1/checkpoints/jobs/job1": () =>
        ok(page([checkpoint({ used_by: [{ job_id: "job9", job_name: "gpt-again" }] })])),
      "DELETE /api/v1/checkpoints/c1": () => ok(checkpoint({ state: "deleting" }), 202),
    });
    renderApp("/jobs/job1?tab=checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Delete the checkpoint of step 100" }));
    const dialog = await screen.findByRole("dialog");
    expect(dialog).toHaveTextContent("1 unfinished job started from it: gpt-again");
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete checkpoint" }));
    await waitFor(() =>
      expect(seen.find(({ method }) => method === "DELETE")?.url.searchParams.get("confirm")).toBe("true"),
    );
  });

  it("says what a save cost the steps around it, and nothing where it is unknown", async () => {
    mockApi({
      "GET /api/v1/checkpoints/jobs/job1": () =>
        ok(
          page([
            checkpoint(),
            checkpoint({ id: "c0", step: 50, stall_seconds: null, write_seconds: null, slowdown: null }),
          ]),
        ),
    });
    renderApp("/jobs/job1?tab=checkpoints");
    const told = (await screen.findByRole("button", { name: "Delete the checkpoint of step 100" })).closest("tr")!;
    expect(told).toHaveTextContent("12 ms");
    act(() => within(told).getByText("0.41 s").focus());
    expect(await screen.findByRole("tooltip")).toHaveTextContent("Steps took 1.07x as long");
  });

  it("confirms what the dialog said of a pinned checkpoint, which the coordinator would otherwise refuse for ever", async () => {
    const seen = mockApi({
      "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint({ pinned: true, latest: false })])),
      "DELETE /api/v1/checkpoints/c1": () => ok(checkpoint({ state: "deleting" }), 202),
    });
    renderApp("/jobs/job1?tab=checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Delete the checkpoint of step 100" }));
    const dialog = await screen.findByRole("dialog");
    expect(dialog).toHaveTextContent("It is pinned.");
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete checkpoint" }));
    await waitFor(() =>
      expect(seen.find(({ method }) => method === "DELETE")?.url.searchParams.get("confirm")).toBe("true"),
    );
  });

  it("sets an ended job itself back to a checkpoint, and says why one at work cannot be", async () => {
    const answers = {
      "GET /api/v1/training/jobs/job1": () => ok(job({ state: "failed" })),
      "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint()])),
      "POST /api/v1/checkpoints/c1/restore": () => ok(job({ state: "queued" })),
    };
    const seen = mockApi(answers);
    renderApp("/jobs/job1?tab=checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Restore from step 100" }));
    const dialog = await screen.findByRole("dialog");
    await userEvent.click(within(dialog).getByRole("radio", { name: "gpt-stdlib" }));
    expect(dialog).toHaveTextContent("Its newer checkpoints no longer count");
    await userEvent.click(within(dialog).getByRole("button", { name: "Set gpt-stdlib back" }));
    await waitFor(() =>
      expect(seen.find(({ method }) => method === "POST")?.body).toEqual({ name: null, steps: null, in_place: true }),
    );
  });

  it("says at the field what is wrong with the name of a restored job, as the form of a new job does", async () => {
    const seen = mockApi({
      "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint()])),
      "POST /api/v1/checkpoints/c1/restore": () => ok(job({ state: "queued" })),
    });
    renderApp("/jobs/job1?tab=checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Restore from step 100" }));
    const field = await screen.findByRole("textbox", { name: "Name of the new job" });
    await userEvent.clear(field);
    await userEvent.type(field, "My Run!");
    expect(field).toBeInvalid();
    expect(field).toHaveAccessibleDescription(/Invalid value "My Run!": 1 to 63 lower-case letters/);
    expect(screen.getByRole("button", { name: "Start job" })).toBeDisabled();
    await userEvent.clear(field);
    await userEvent.type(field, " my-run ");
    expect(field).toBeValid();
    await userEvent.click(screen.getByRole("button", { name: "Start job" }));
    await waitFor(() =>
      expect(seen.find(({ method }) => method === "POST")?.body).toMatchObject({ name: "my-run", in_place: false }),
    );
  });

  it("offers only a new job while the job is at work", async () => {
    mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(job({ state: "running" })),
      "GET /api/v1/checkpoints/jobs/job1": () => ok(page([checkpoint()])),
    });
    renderApp("/jobs/job1?tab=checkpoints");
    await userEvent.click(await screen.findByRole("button", { name: "Restore from step 100" }));
    const dialog = await screen.findByRole("dialog");
    expect(within(dialog).getByRole("radio", { name: "gpt-stdlib" })).toBeDisabled();
    expect(dialog).toHaveTextContent("gpt-stdlib is running: pause it first.");
  });
});
