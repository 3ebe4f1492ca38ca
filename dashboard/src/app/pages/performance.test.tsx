import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { artifact, job, page, performance, profileRequest } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const ONE = "/api/v1/training/jobs/job1";

describe("the performance of a job", () => {
  it("says n/a for MFU where the device has no stated peak, and why", async () => {
    mockApi();
    renderApp("/jobs/job1?tab=performance");
    const panel = await screen.findByRole("region", { name: "Performance" });
    expect(await within(panel).findByText("n/a")).toBeVisible();
    expect(panel).toHaveTextContent("MFU: not available: no peak FLOP/s is published for this CPU.");
    expect(panel).toHaveTextContent("12.5%");
    expect(
      within(within(panel).getByRole("table", { name: "Peak memory by rank" })).getByText("500.0 MiB"),
    ).toBeVisible();
  });

  it("shows MFU beside its formula and the peak", async () => {
    const mfu = {
      value: 0.412,
      text: "41.2% of NVIDIA H100 in bf16",
      formula: "6N per sample, N=1,000",
      flops_per_sample: 6000,
      flops_per_second: 768_000,
      peak_flops: 128 * 989.5e12,
      devices: ["NVIDIA H100"],
      sources: ["NVIDIA H100 datasheet, SXM5"],
    };
    mockApi({ [`GET ${ONE}/performance`]: () => ok(performance({ mfu })) });
    renderApp("/jobs/job1?tab=performance");
    const panel = await screen.findByRole("region", { name: "Performance" });
    expect(await within(panel).findByText("41.2%")).toBeVisible();
    expect(panel).toHaveTextContent("of 127 PFLOP/s");
    expect(panel).toHaveTextContent("Model FLOPs: 6N per sample, N=1,000. Peak: NVIDIA H100 datasheet, SXM5.");
  });

  it("folds the peak memory of many ranks to the fullest and the emptiest", async () => {
    const peaks = Array.from({ length: 128 }, (_, rank) => ({ rank, bytes: ((rank * 37) % 128) * 2 ** 20 }));
    mockApi({ [`GET ${ONE}/performance`]: () => ok(performance({ peak_memory: peaks })) });
    renderApp("/jobs/job1?tab=performance");
    const table = await screen.findByRole("table", { name: "Peak memory by rank" });
    const rows = () => within(table).getAllByRole("row").slice(1);
    expect(rows()).toHaveLength(8);
    expect(rows()[0]).toHaveTextContent("127.0 MiB");
    expect(rows()[7]).toHaveTextContent("0 B");
    await userEvent.click(screen.getByRole("button", { name: "Show 120 more ranks" }));
    expect(rows()).toHaveLength(128);
  });
});

describe("how gradients are summed", () => {
  it("is told with the reason and with what the other ways would take", async () => {
    const option = (name: string, predicted: number, measured: number | null, taken = false) => ({
      name,
      predicted_seconds: predicted,
      measured_seconds: measured,
      taken,
    });
    const communication = {
      step: 25,
      text: "top_k, by a hierarchy: a step takes 423 ms instead of 6.19 s",
      links: "measured: 94.4 Mbit/s and 202 µs between machines",
      why: "faster",
      name: "top_k, by a hierarchy",
      waited_seconds: 5.9,
      options: [
        option("exact, by the backend", 6.19, 6.19),
        option("bf16, by a hierarchy", 2.2, null),
        option("top_k, by a hierarchy", 0.479, 0.423, true),
      ],
      within: null,
      between: { latency_seconds: 2e-4, bytes_per_second: 11.8e6 },
    };
    mockApi({ [`GET ${ONE}`]: () => ok(job({ communication })) });
    renderApp("/jobs/job1?tab=performance");
    const panel = await screen.findByRole("region", { name: "How gradients are summed" });
    expect(panel).toHaveTextContent("instead of 6.19 s. Decided after step 25; measured: 94.4 Mbit/s");
    const rows = within(panel).getAllByRole("row").slice(1);
    expect(
      rows.map((row) =>
        within(row)
          .getAllByRole("cell")
          .map((cell) => cell.textContent),
      ),
    ).toEqual([
      ["exact, by the backend", "6.2 s", "6.2 s"],
      ["bf16, by a hierarchy", "2.2 s", "–"],
      ["top_k, by a hierarchy (in use)", "0.48 s", "0.42 s"],
    ]);
  });

  it("is not told of a job that says it itself", async () => {
    mockApi();
    renderApp("/jobs/job1?tab=performance");
    await screen.findByRole("region", { name: "Performance" });
    expect(screen.queryByRole("region", { name: "How gradients are summed" })).toBeNull();
  });
});

describe("the bubble of a pipeline", () => {
  it("stands beside what the formula says", async () => {
    const bubble = { measured: 0.15, formula: 0.111, text: "1f1b, 8 micro-batches through 2 stages on 2 ranks" };
    mockApi({ [`GET ${ONE}/performance`]: () => ok(performance({ bubble })) });
    renderApp("/jobs/job1?tab=performance");
    const panel = await screen.findByRole("region", { name: "Performance" });
    expect(await within(panel).findByText("15.0%")).toBeVisible();
    expect(panel).toHaveTextContent("11.1% by the formula: 1f1b, 8 micro-batches through 2 stages on 2 ranks");
  });
});

describe("what the ranks of a job send", () => {
  it("stands by axis of the mesh, beside what goes on meanwhile", async () => {
    const traffic = [
      { axis: "tensor", rank: 1, bytes_per_step: 3 * 1024 ** 2, bytes_per_second: 12 * 1024 ** 2 },
      { axis: "world", rank: 0, bytes_per_step: 240, bytes_per_second: null },
    ];
    mockApi({ [`GET ${ONE}/performance`]: () => ok(performance({ traffic, uncounted: ["context"], timed_rank: 2 })) });
    renderApp("/jobs/job1?tab=performance");
    const panel = await screen.findByRole("region", { name: "Performance" });
    const table = await within(panel).findByRole("table", { name: "Traffic by mesh axis" });
    expect(
      within(table)
        .getAllByRole("row")
        .slice(1)
        .map((row) => row.textContent),
    ).toEqual(["tensor3.0 MiB12.0 MiB/srank 1", "all ranks240 B–rank 0", "contextnot counted––"]);
    expect(panel).toHaveTextContent("Exposed communication12.5%of a step on rank 2, measured");
    expect(panel).toHaveTextContent("Overlapped communication3.4%");
  });

  it("is no table where there is one rank, and no claim where nobody tells", async () => {
    mockApi({ [`GET ${ONE}/performance`]: () => ok(performance({ overlapped_communication: null })) });
    renderApp("/jobs/job1?tab=performance");
    const panel = await screen.findByRole("region", { name: "Performance" });
    expect(await within(panel).findByText("Exposed communication")).toBeVisible();
    expect(within(panel).queryByRole("table", { name: "Traffic by mesh axis" })).toBeNull();
    expect(panel).not.toHaveTextContent("Overlapped");
  });

  it("is said not to be known where only a part of the waits is seen", async () => {
    mockApi({ [`GET ${ONE}/performance`]: () => ok(performance({ exposed_communication: null })) });
    renderApp("/jobs/job1?tab=performance");
    expect(await screen.findByText("not known: torch starts it, on GPUs")).toBeVisible();
  });
});

describe("the traces of a job", () => {
  it("can be downloaded, and say why one is missing", async () => {
    mockApi({
      [`GET ${ONE}/artifacts`]: () =>
        ok(page([artifact(), artifact({ id: "a2", rank: 1, state: "failed", bytes: 0, error: "CUPTI is not there" })])),
    });
    renderApp("/jobs/job1?tab=performance");
    expect(await screen.findByRole("link", { name: "Download the trace of rank 0, steps 7 to 9" })).toHaveAttribute(
      "href",
      `${ONE}/artifacts/a1/content`,
    );
    expect(screen.getByText("CUPTI is not there")).toBeVisible();
    expect(screen.queryByRole("link", { name: /rank 1/ })).toBeNull();
    expect(screen.getByRole("link", { name: "Curves for TensorBoard" })).toHaveAttribute("href", `${ONE}/tensorboard`);
  });

  it("are asked for with the ranks that were named, one request at a time", async () => {
    let asked: ReturnType<typeof profileRequest> | null = null;
    const seen = mockApi({
      [`GET ${ONE}/profile`]: () => ok(asked),
      [`POST ${ONE}/profile`]: () => ok((asked = profileRequest({ ranks: [0, 3] })), 201),
    });
    renderApp("/jobs/job1?tab=performance");
    const form = await screen.findByRole("form", { name: "Record a trace" });
    await userEvent.clear(within(form).getByLabelText("Ranks"));
    await userEvent.type(within(form).getByLabelText("Ranks"), "0, 3");
    await userEvent.click(within(form).getByRole("button", { name: "Record a trace" }));
    expect(await within(form).findByText("Waiting for 2 ranks to trace 3 steps")).toBeVisible();
    expect(within(form).getByRole("button", { name: "Record a trace" })).toBeDisabled();
    const sent = seen.find(({ method, path }) => method === "POST" && path === `${ONE}/profile`)!;
    expect(sent.body).toEqual({ steps: 3, ranks: [0, 3] });
    expect(sent.headers.get("Idempotency-Key")).toBeTruthy();
  });

  it("say what the coordinator objects to", async () => {
    mockApi({
      [`POST ${ONE}/profile`]: () => problem(409, "cannot_profile", "ranks=0: job gpt runs with the ranks 1 to 1"),
    });
    renderApp("/jobs/job1?tab=performance");
    await userEvent.click(await screen.findByRole("button", { name: "Record a trace" }));
    expect(await screen.findByText("ranks=0: job gpt runs with the ranks 1 to 1")).toBeVisible();
  });

  it("are deleted after naming what is lost", async () => {
    const seen = mockApi({
      [`GET ${ONE}/artifacts`]: () => ok(page([artifact()])),
      [`DELETE ${ONE}/artifacts/a1`]: () => ok(undefined, 204),
    });
    renderApp("/jobs/job1?tab=performance");
    await userEvent.click(await screen.findByRole("button", { name: /^Delete the trace of rank 0/ }));
    const dialog = await screen.findByRole("dialog", { name: "Delete the trace of rank 0?" });
    expect(dialog).toHaveTextContent("2.0 MiB");
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete trace" }));
    expect(seen.some(({ method, path }) => method === "DELETE" && path === `${ONE}/artifacts/a1`)).toBe(true);
  });
});
