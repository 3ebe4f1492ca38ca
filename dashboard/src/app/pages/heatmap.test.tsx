import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import { SERIES_COLORS } from "@/lib/series";
import { curve, heatmap, job, metrics, rank } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const MAP = "GET /api/v1/metrics/jobs/job1/heatmap";
const NAMES = ["loss", "step_seconds", "forward_seconds"];
const ROUTES = {
  "GET /api/v1/training/jobs/job1": () => ok(job({ world_size: 2 })),
  "GET /api/v1/metrics/jobs/job1": () =>
    ok(metrics({ names: NAMES, curves: NAMES.map((name) => ({ ...curve(), name })) })),
};

const STRONG = [0xff, 0, 0, 255];

/** Has the map painted in a ramp from black to red; returns the colours of its cells as they are when it is called. */
function paintedCells(): () => number[][] {
  const image = { data: new Uint8ClampedArray() };
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(function (this: HTMLCanvasElement) {
    if (this.getAttribute("role") !== "img") return null;
    const createImageData = (columns: number, rows: number) => {
      image.data = new Uint8ClampedArray(columns * rows * 4);
      return image;
    };
    return { createImageData, putImageData: () => {} } as unknown as never;
  });
  const ramp: Record<string, string> = { "--track": "#000000", "--series-2": "#7f0000", "--bad-text": "#ff0000" };
  vi.spyOn(CSSStyleDeclaration.prototype, "getPropertyValue").mockImplementation((token) => ramp[token] ?? "");
  return () => Array.from({ length: image.data.length / 4 }, (_, at) => [...image.data.slice(4 * at, 4 * at + 4)]);
}

describe("the heat map of a job", () => {
  it("names the slow rank, by its time without waiting, and lists all ranks as a table", async () => {
    const seen = mockApi({ ...ROUTES, [MAP]: () => ok(heatmap([[0.1], [0.3]])) });
    renderApp("/jobs/job1?tab=ranks");
    const panel = await screen.findByRole("region", { name: "Heat map" });
    expect(await within(panel).findByRole("img", { name: /^Heat map: Rank 1 .*0.3 s, 1.5 times/ })).toBeVisible();
    const asked = seen.find(({ path }) => path.endsWith("/heatmap"))!.url.searchParams;
    expect([asked.get("name"), asked.get("statistic")]).toEqual(["busy_seconds", "mean"]);
    await userEvent.click(within(panel).getByRole("button", { name: "Heat map as a table" }));
    const rows = within(within(panel).getByRole("table")).getAllByRole("row");
    expect(rows[2]).toHaveTextContent("0.3 s1.50 ×0.3 s");
  });

  it("stands above the ranks, of which there may be a thousand", async () => {
    mockApi({ ...ROUTES, [MAP]: () => ok(heatmap([[0.1], [0.3]])) });
    renderApp("/jobs/job1?tab=ranks");
    const panel = await screen.findByRole("region", { name: "Heat map" });
    const ranks = screen.getByRole("region", { name: "Ranks" });
    expect(panel.compareDocumentPosition(ranks)).toBe(Node.DOCUMENT_POSITION_FOLLOWING);
  });

  it("asks for the highest step of a metric that was measured", async () => {
    const seen = mockApi({ ...ROUTES, [MAP]: () => ok(heatmap([[0.1], [0.3]])) });
    renderApp("/jobs/job1?tab=ranks");
    const panel = await screen.findByRole("region", { name: "Heat map" });
    expect(within(panel).getByLabelText("Highest step")).toBeDisabled();
    await userEvent.click(within(panel).getByRole("combobox", { name: "Metric of the heat map" }));
    await userEvent.click(await screen.findByRole("option", { name: "Forward", hidden: true }));
    await waitFor(() => expect(within(panel).getByLabelText("Highest step")).toBeEnabled());
    await userEvent.click(within(panel).getByLabelText("Highest step"));
    const asked = () => seen.filter(({ path }) => path.endsWith("/heatmap")).at(-1)!.url.searchParams;
    await waitFor(() =>
      expect([asked().get("name"), asked().get("statistic")]).toEqual(["forward_seconds", "maximum"]),
    );
    expect(await within(panel).findByRole("img", { name: /Heat map/ })).toBeVisible();
  });

  it("keeps the unit of the map that stands while another one is fetched, and says that it is a former one", async () => {
    const never = new Promise<never>(() => {});
    const names = [...NAMES, "tokens_per_second"];
    mockApi({
      ...ROUTES,
      "GET /api/v1/metrics/jobs/job1": () =>
        ok(metrics({ names, curves: names.map((name) => ({ ...curve(), name })) })),
      [MAP]: ({ url }) =>
        url.searchParams.get("name") === "busy_seconds" ? ok(heatmap([[0.1], [0.3], [0.1]])) : never,
    });
    renderApp("/jobs/job1?tab=ranks");
    const panel = await screen.findByRole("region", { name: "Heat map" });
    expect((await within(panel).findByText("0.3 s and more")).closest("[aria-busy]")).toBeNull();
    await userEvent.click(within(panel).getByRole("combobox", { name: "Metric of the heat map" }));
    await userEvent.click(await screen.findByRole("option", { name: "Tokens per second", hidden: true }));
    const former = within(panel).getByText("0.3 s and more");
    await waitFor(() => expect(former.closest("[aria-busy=true]")).not.toBeNull());
    expect(former).toBeVisible();
  });

  it("colours each cell by its distance from the median of its step where that is wanted", async () => {
    mockApi({ ...ROUTES, [MAP]: () => ok(heatmap([[0.1], [0.3], [0.1]])) });
    renderApp("/jobs/job1?tab=ranks");
    const panel = await screen.findByRole("region", { name: "Heat map" });
    await within(panel).findByText("0.3 s and more");
    await userEvent.click(within(panel).getByLabelText("Over the median"));
    expect(await within(panel).findByText("3 times the median and more")).toBeVisible();
  });

  it("shows a reading of each rank's own card, and names the rank with the slowest clock", async () => {
    const cells = paintedCells();
    const ranks = [0, 1].map((number) => rank({ rank: number, card: number }));
    const seen = mockApi({
      ...ROUTES,
      "GET /api/v1/training/jobs/job1": () => ok(job({ world_size: 2, ranks })),
      [MAP]: ({ url }) => ok(heatmap([[1980], [1400]], { name: url.searchParams.get("name")!, unit: "MHz" })),
    });
    renderApp("/jobs/job1?tab=ranks");
    const panel = await screen.findByRole("region", { name: "Heat map" });
    await userEvent.click(within(panel).getByRole("combobox", { name: "Metric of the heat map" }));
    await userEvent.click(await screen.findByRole("option", { name: "Card: SM clock", hidden: true }));
    const picture = await within(panel).findByRole("img", {
      name: /^Heat map: Rank 1 .*the lowest mean: .* MHz, 83% of the median/,
    });
    expect(picture).toBeVisible();
    expect(seen.findLast(({ path }) => path.endsWith("/heatmap"))!.url.searchParams.get("name")).toBe(
      "card/sm_clock_mhz",
    );
    expect(panel).toHaveTextContent(/2,\d+ MHz.*MHz and less/); // the strong end of the colours stands on the right
    const [fast, slow] = cells();
    expect(slow).toEqual(STRONG);
    expect(fast![0]).toBeLessThan(0xc0);
    await userEvent.click(within(panel).getByRole("button", { name: "Heat map as a table" }));
    expect(within(panel).getByRole("columnheader", { name: /Lowest cell/ })).toBeVisible();
  });

  it.each([
    { ranks: 8, text: null },
    { ranks: 20, text: "8 lines for 20 ranks: click on a row of the map to have its line" },
  ])("draws a line of its own colour for $ranks ranks, as far as there are colours", async ({ ranks, text }) => {
    mockApi({ ...ROUTES, [MAP]: () => ok(heatmap(Array.from({ length: ranks }, () => [0.1, 0.2]))) });
    renderApp("/jobs/job1?tab=ranks");
    const panel = await screen.findByRole("region", { name: "Heat map" });
    await userEvent.click(await within(panel).findByRole("radio", { name: /^All ranks/ }));
    const lines = Array.from({ length: SERIES_COLORS }, (_, rank) => `rank ${rank}`);
    const sentence = ["mean of all ranks", ...lines].join(", ");
    expect(await within(panel).findByRole("img", { name: new RegExp(`^Ranks: ${sentence};`) })).toBeVisible();
    const swatches = ["mean of all ranks", ...lines].map(
      (name) => within(panel).getByText(name).querySelector("span")!.style.background,
    );
    expect(new Set(swatches).size).toBe(SERIES_COLORS + 1);
    if (text === null) expect(panel).not.toHaveTextContent("lines for");
    else expect(panel).toHaveTextContent(text);
  });

  it("is not there for one rank, which has nothing to be compared with", async () => {
    mockApi({ ...ROUTES, "GET /api/v1/training/jobs/job1": () => ok(job({ world_size: 1 })) });
    renderApp("/jobs/job1?tab=ranks");
    await screen.findByRole("region", { name: "Generations" });
    expect(screen.queryByRole("region", { name: "Heat map" })).toBeNull();
  });
});
