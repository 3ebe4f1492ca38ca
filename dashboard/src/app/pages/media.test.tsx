import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeAll, describe, expect, it } from "vitest";
import {
  job,
  jobMedia,
  jobSummary,
  loggedHistogram,
  mediaAtStep,
  mediaHistograms,
  mediaKey,
  metrics,
  page,
} from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const MEDIA = "/api/v1/training/jobs/job1/media";
const WEIGHTS = mediaKey({ key: "weights", kind: "histogram" });
const PREDICTIONS = mediaKey({ key: "preds", kind: "table" });

function image(step: number, rank: number) {
  return { images: [{ number: 0, width: 28, height: 28, caption: `rank ${rank} at ${step}`, format: "png" as const }] };
}

function logged(routes: Routes = {}) {
  return mockApi({
    [`GET ${MEDIA}`]: () => ok(jobMedia(mediaKey({ steps: [10, 20, 30], ranks: [0, 1] }))),
    [`GET ${MEDIA}/object`]: ({ url }) => {
      const step = Number(url.searchParams.get("step"));
      return ok(mediaAtStep(mediaKey(), step, image(step, 0), image(step, 1)));
    },
    ...routes,
  });
}

const show = (search = "") => renderApp(`/jobs/job1?tab=media${search}`);

// Compiling the pages is no part of what the first tests wait for.
beforeAll(() => Promise.all([import("./JobPage"), import("./ComparePage")]));

describe("what a job has logged beside numbers", () => {
  it("is told how to be logged where there is nothing", async () => {
    logged({ [`GET ${MEDIA}`]: () => ok(jobMedia()) });
    show();
    expect(await screen.findByText(/paceline\.log\(step, samples=paceline\.Image\(array\)/)).toBeVisible();
  });

  it("shows the newest images of each rank with their captions", async () => {
    const seen = logged();
    show();
    const panel = await screen.findByRole("region", { name: "samples images" });
    expect(await within(panel).findByRole("heading", { name: "rank 1" })).toBeVisible();
    const picture = within(panel).getByRole("img", { name: "rank 1 at 30" });
    expect(picture).toHaveAttribute("src", `${MEDIA}/samples-30-1/images/0`);
    expect(picture).toHaveAttribute("loading", "lazy");
    expect(seen.find(({ path }) => path === `${MEDIA}/object`)!.url.searchParams.get("rank")).toBe("0,1");
  });

  it("folds by key, and fetches nothing of what is folded", async () => {
    const seen = logged();
    show();
    const panel = await screen.findByRole("region", { name: "samples images" });
    const fold = within(panel).getByRole("button", { name: "Fold samples" });
    expect(fold).toHaveAttribute("aria-expanded", "true");
    await userEvent.click(fold);
    const folded = screen.getByRole("region", { name: "samples images, folded" });
    expect(screen.queryByRole("img", { name: "rank 1 at 30" })).toBeNull();
    const before = seen.filter(({ path }) => path === `${MEDIA}/object`).length;
    fireEvent.keyDown(screen.getByRole("slider"), { key: "Home" });
    expect(seen.filter(({ path }) => path === `${MEDIA}/object`)).toHaveLength(before);
    await userEvent.click(within(folded).getByRole("button", { name: "Unfold samples" }));
    expect(await screen.findByRole("region", { name: "samples images" })).toBeVisible();
  });

  it("moves by the slider, and keeps the step in the URL", async () => {
    logged();
    const { router } = show("&mediaStep=12");
    expect(await screen.findByRole("img", { name: "rank 0 at 10" })).toBeVisible();
    const slider = screen.getByRole("slider", { name: "Step" });
    expect(slider).toHaveAttribute("aria-valuetext", "Step 10, 1 of 3");
    fireEvent.change(slider, { target: { value: "1" } });
    expect(await screen.findByRole("img", { name: "rank 0 at 20" })).toBeVisible();
    expect(router.state.location.search).toMatchObject({ mediaStep: 20 });
    await userEvent.click(screen.getByRole("button", { name: "Newest" }));
    expect(await screen.findByRole("img", { name: "rank 0 at 30" })).toBeVisible();
    expect(router.state.location.search).not.toHaveProperty("mediaStep");
  });

  it("offers the steps that the charts show, and all again", async () => {
    logged();
    const { router } = show("&from=5&to=25");
    expect(await screen.findByRole("img", { name: "rank 0 at 20" })).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Show all steps, not only 5–25" }));
    expect(await screen.findByRole("img", { name: "rank 0 at 30" })).toBeVisible();
    expect(router.state.location.search).not.toHaveProperty("from");
  });

  it("shows a histogram, those of all steps, and their statistics as a table", async () => {
    logged({
      [`GET ${MEDIA}`]: () => ok(jobMedia(WEIGHTS)),
      [`GET ${MEDIA}/object`]: () =>
        ok(mediaAtStep(WEIGHTS, 20, { histogram: loggedHistogram({ values: 5, nans: 1 }) })),
      [`GET ${MEDIA}/histograms`]: () => ok(mediaHistograms(10, 20)),
    });
    show();
    const panel = within(await screen.findByRole("region", { name: "weights histogram" }));
    expect(await panel.findByText("5 values (1 NaN) from 0 to 2, mean 1.25, std 0.5.")).toBeVisible();
    expect(await panel.findByRole("img", { name: "Histograms of weights over steps" })).toBeVisible();
    expect(panel.getByText("Steps 10 to 20, the newest in front.")).toBeVisible();
    await userEvent.click(panel.getByRole("button", { name: /table/i }));
    const table = await panel.findByRole("table", { name: "Statistics of weights" });
    expect(within(table).getAllByRole("row")).toHaveLength(3);
  });

  it("sorts a table by a column of numbers, and says what is not stored", async () => {
    const table = {
      columns: ["label", "score"],
      rows: [
        ["cat", 10],
        ["dog", 9.5],
        ["eel", "NaN"],
        [null, 11],
      ],
      total_rows: 9,
    };
    logged({
      [`GET ${MEDIA}`]: () => ok(jobMedia(PREDICTIONS)),
      [`GET ${MEDIA}/object`]: () => ok(mediaAtStep(PREDICTIONS, 20, { table })),
    });
    show();
    const found = await screen.findByRole("table", { name: "preds, step 20" });
    await userEvent.click(within(found).getByRole("button", { name: /score/ }));
    const scores = () =>
      within(found)
        .getAllByRole("row")
        .slice(1)
        .map((row) => within(row).getAllByRole("cell")[1]!.textContent);
    await waitFor(() => expect(scores()).toEqual(["11", "10", "9.5", "NaN"]));
    expect(screen.getByText("The first 4 of 9 rows are stored.")).toBeVisible();
    expect(screen.getByRole("button", { name: "Download CSV" })).toBeEnabled();
  });

  it("tells what cannot be read, beside what can", async () => {
    logged({
      [`GET ${MEDIA}/object`]: () =>
        ok(mediaAtStep(mediaKey(), 30, { error: "the object cannot be read: cut off" }, image(30, 1))),
    });
    show();
    expect(await screen.findByRole("alert")).toHaveTextContent("the object cannot be read: cut off");
    expect(screen.getByRole("img", { name: "rank 1 at 30" })).toBeVisible();
  });

  it("can be asked for again after an error", async () => {
    let fails = true;
    logged({ [`GET ${MEDIA}`]: () => (fails ? problem(500, "internal", "broken") : ok(jobMedia())) });
    show();
    const again = await screen.findByRole("button", { name: /try again|retry/i });
    fails = false;
    await userEvent.click(again);
    expect(await screen.findByText("No images, histograms or tables")).toBeVisible();
  });
});

describe("two jobs beside each other", () => {
  it("show the same key with the names of the runs", async () => {
    logged({
      "GET /api/v1/training/jobs": () => ok(page([jobSummary({ id: "job2", name: "other" }), jobSummary()])),
      "GET /api/v1/training/jobs/job2": () => ok(job({ id: "job2", name: "other" })),
      "GET /api/v1/metrics/jobs/job2": () => ok(metrics({ job_id: "job2" })),
      "GET /api/v1/training/compare": () => ok({ items: [] }),
      "GET /api/v1/training/jobs/job2/media": () => ok(jobMedia(mediaKey({ steps: [10] }))),
      "GET /api/v1/training/jobs/job2/media/object": () => ok(mediaAtStep(mediaKey(), 10, image(10, 0))),
    });
    renderApp("/compare?jobs=job1,job2");
    // Captions come last: from then on the panel stays as it is.
    await screen.findByText("rank 0 at 10");
    await screen.findByText("rank 1 at 30");
    const panel = within(screen.getByRole("region", { name: "samples images" }));
    await waitFor(() => expect(panel.getByRole("heading", { name: "other, step 10" })).toBeVisible());
    expect(panel.getByRole("heading", { name: /, rank 1$/ })).toBeVisible();
  });
});
