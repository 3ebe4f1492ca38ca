import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import type { Job } from "@/lib/types";
import { audit, goodput, job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const JOB = "/api/v1/training/jobs/job1";

describe("goodput", () => {
  it("is a number with its account, in a sentence, a bar and a table", async () => {
    mockApi({ [`GET ${JOB}/goodput`]: () => ok(goodput()) });
    renderApp("/jobs/job1?tab=incidents");
    const panel = await screen.findByRole("region", { name: "Goodput" });
    expect(
      await within(panel).findByText(
        "of the 1 min 40 s since the job got its slots, excluding 12 s paused, went into useful training (980 steps, plus 3 repeated steps).",
      ),
    ).toBeVisible();
    expect(within(panel).getByRole("img")).toHaveAccessibleName("useful steps 98.0% (1 min 38 s), incident 2.0% (2 s)");
    const row = within(within(panel).getByRole("table")).getByText("Incident").closest("tr")!;
    for (const text of ["2 s", "2.0%", "from a fault to the next"]) expect(row).toHaveTextContent(text);
    expect(within(panel).getByText("98.0%", { selector: "div" })).toBeVisible();
  });
});

describe("the goodput of a script that tells of no step", () => {
  it("is not known, which no bar and no share hides", async () => {
    const part = (cause: "stepping" | "starting" | "unaccounted", seconds: number) => ({
      cause,
      seconds,
      share: seconds / 100,
      text: `what ${cause} is`,
    });
    const account = goodput({
      goodput: null,
      text: "a script does not report its steps",
      useful_steps: 0,
      parts: [part("stepping", 0), part("starting", 8), part("unaccounted", 92)],
    });
    const script = { ...job().spec!, script: { path: "train.py" } };
    mockApi({
      "GET /api/v1/training/jobs/job1": () => ok(job({ spec: script, state: "completed" } as Partial<Job>)),
      [`GET ${JOB}/goodput`]: () => ok(account),
    });
    renderApp("/jobs/job1?tab=incidents");
    const panel = await screen.findByRole("region", { name: "Goodput" });
    expect(await within(panel).findByText("A script does not report its steps.")).toBeVisible();
    expect(within(panel).queryByRole("img")).toBeNull();
    expect(within(panel).getByText("Starting")).toBeVisible();
    for (const claim of ["Useful steps", "Unaccounted"]) expect(within(panel).queryByText(claim)).toBeNull();
  });
});

describe("the audit of samples", () => {
  it("says that each was used exactly once, and which steps used which", async () => {
    mockApi({ [`GET ${JOB}/samples`]: () => ok(audit()) });
    renderApp("/jobs/job1?tab=incidents");
    const panel = await screen.findByRole("region", { name: "Samples" });
    expect(await within(panel).findByText("exactly once")).toBeVisible();
    expect(within(panel).getByRole("table", { name: "Ranges of samples by step" })).toHaveTextContent(
      "1 to 1340 to 1,071",
    );
    expect(within(panel).getByRole("button", { name: "Copy verdict" })).toBeVisible();
  });

  it("lists what it found, and never calls that exactly once", async () => {
    mockApi({
      [`GET ${JOB}/samples`]: () =>
        ok(audit({ exactly_once: false, duplicates: 8, findings: ["step 20 used places 152 to 159 again"] })),
    });
    renderApp("/jobs/job1?tab=incidents");
    const panel = await screen.findByRole("region", { name: "Samples" });
    expect(await within(panel).findByText("not exactly once")).toBeVisible();
    expect(within(panel).getByRole("list", { name: "Findings" })).toHaveTextContent(
      "step 20 used places 152 to 159 again",
    );
    expect(within(panel).queryByText("exactly once")).toBeNull();
  });

  it("says when a job does not tell which samples it uses", async () => {
    mockApi({
      [`GET ${JOB}/samples`]: () =>
        ok(audit({ recorded: false, exactly_once: null, text: "no step has told which samples it used", steps: 0 })),
    });
    renderApp("/jobs/job1?tab=incidents");
    const panel = await screen.findByRole("region", { name: "Samples" });
    expect(await within(panel).findByText("Not recorded")).toBeVisible();
    expect(panel).toHaveTextContent("No step has told which samples it used.");
  });

  it("reads further ranges by cursor", async () => {
    const seen = mockApi({
      [`GET ${JOB}/samples`]: ({ url }) =>
        ok(
          audit(
            url.searchParams.get("cursor")
              ? { ranges: [{ ...audit().ranges[0]!, generation: 2, first_step: 135, last_step: 400 }] }
              : { next_cursor: "page-2" },
          ),
        ),
    });
    renderApp("/jobs/job1?tab=incidents");
    await userEvent.click(await screen.findByRole("button", { name: "More ranges" }));
    await waitFor(() =>
      expect(screen.getByRole("table", { name: "Ranges of samples by step" })).toHaveTextContent("135 to 400"),
    );
    expect(seen.some(({ url }) => url.searchParams.get("cursor") === "page-2")).toBe(true);
    expect(screen.queryByRole("button", { name: "More ranges" })).toBeNull();
  });
});
