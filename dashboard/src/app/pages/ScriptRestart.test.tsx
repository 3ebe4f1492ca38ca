/** What the page of a script says of a restart: no more than the script has told. */
import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { MISSING } from "@/lib/format";
import type { Job } from "@/lib/types";
import { generation, incident, job } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const SPEC = {
  ...job().spec,
  model: null,
  data: null,
  training: null,
  script: { path: "train.py", args: [], grace_seconds: 30, virtual_local_rank: false, saves_on_sigterm: false },
};

describe("the restart of a script", () => {
  it("claims neither a step that a script went on from nor a number of repeated steps where it does not tell them", async () => {
    const generations = [
      generation({ end_reason: "rank_crashed", start_step: null }),
      generation({ generation: 2, start_step: null }),
    ];
    const restarted = {
      action: "restarted",
      step: 55,
      resumed_step: null,
      steps_lost: null,
      seconds_lost: null,
    } as const;
    mockApi({
      "GET /api/v1/training/jobs/job1/incidents": () => ok([incident({ ...restarted, new_size: 2 })]),
      "GET /api/v1/training/jobs/job1": () => ok(job({ spec: SPEC, generations, generation: 2 } as Partial<Job>)),
    });
    const curves = renderApp("/jobs/job1");
    await userEvent.click(await screen.findByRole("button", { name: "Loss as a table" }));
    const mark = within(screen.getByRole("table", { name: "Marks on Loss" })).getByText(/SIGKILL/);
    expect(mark).toHaveTextContent(
      "Rank 1 on node-b was killed by SIGKILL. Generation 2 restarted on 2 ranks from an unknown step: outage 0.35 s.",
    );
    expect(mark.closest("tr")).toHaveTextContent(/55/);
    curves.unmount();
    const incidents = renderApp("/jobs/job1?tab=incidents");
    const row = (await screen.findByText("Rank 1 on node-b was killed by SIGKILL")).closest("tr")!;
    expect(within(row).getByText("unknown")).toBeVisible();
    incidents.unmount();
    renderApp("/jobs/job1?tab=ranks");
    const table = await screen.findByRole("table", { name: "Generations" });
    for (const each of within(table).getAllByRole("row").slice(1))
      expect(within(each).getAllByRole("cell")[2]).toHaveTextContent(MISSING);
  });

  it("tells the step that a script went on from where its own steps tell it", async () => {
    const generations = [
      generation({ end_reason: "rank_crashed", start_step: null }),
      generation({ generation: 2, start_step: null }),
    ];
    mockApi({
      "GET /api/v1/training/jobs/job1/incidents": () =>
        ok([incident({ action: "restarted", step: 55, resumed_step: 40, steps_lost: 15 })]),
      "GET /api/v1/training/jobs/job1": () => ok(job({ spec: SPEC, generations, generation: 2 } as Partial<Job>)),
    });
    renderApp("/jobs/job1");
    await userEvent.click(await screen.findByRole("button", { name: "Loss as a table" }));
    expect(
      within(screen.getByRole("table", { name: "Marks on Loss" })).getByText(
        /Generation 2 continues from step 40 on 2 ranks: outage 0.35 s, 15 steps lost\./,
      ),
    ).toBeVisible();
  });
});
