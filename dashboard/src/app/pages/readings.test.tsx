import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it } from "vitest";
import { learnServerTime } from "@/lib/serverTime";
import { cardCurve, idleCard, job, jobSummary, jobUsage, me, metrics, nodeMetrics, page } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const HOUR_MS = 3_600_000;

afterEach(() => learnServerTime(new Headers({ Date: new Date().toUTCString() }), Date.now(), Date.now()));

describe("the past of a node on the cluster page", () => {
  it("is a curve for each card, over the time that the URL says, and a table", async () => {
    const seen = mockApi();
    renderApp("/cluster?window=day");
    const panel = await screen.findByRole("region", { name: "Readings over time" });
    expect(await within(panel).findByRole("img", { name: /^Power: 620 W at/ })).toBeVisible();
    const asked = seen.find(({ path }) => path.endsWith("/n1/metrics"))!;
    expect(Date.now() - Date.parse(asked.url.searchParams.get("since")!)).toBeGreaterThan(86_300_000);
    expect(asked.url.searchParams.has("buckets")).toBe(false); // the coordinator knows how finely readings are stored
    await userEvent.click(within(panel).getByRole("button", { name: "Readings as a table" }));
    expect(within(panel).getByRole("table", { name: "Power as a table" })).toHaveTextContent("Card 1");
  });

  it("ends at the coordinator's time, though the browser's clock is hours behind it, and ages do too", async () => {
    const time = Date.now() + 5 * HOUR_MS;
    const headers = { Date: new Date(time).toUTCString() };
    // The time is known to two seconds: an age in the middle of its minute.
    const young = jobSummary({ created_at: new Date(time - 210_000).toISOString() });
    const seen = mockApi({
      "GET /api/v1/auth/me": () => ({ ...ok(me), headers }),
      "GET /api/v1/training/jobs": () => ok(page([young])),
    });
    const { unmount } = renderApp("/cluster");
    const panel = await screen.findByRole("region", { name: "Readings over time" });
    await within(panel).findByRole("img", { name: /^Power: 620 W at/ });
    const asked = seen.find(({ path }) => path.endsWith("/n1/metrics"))!;
    const since = Date.parse(asked.url.searchParams.get("since")!);
    expect(Math.abs(time - since - HOUR_MS)).toBeLessThan(60_000);
    unmount();
    renderApp("/jobs");
    expect(await screen.findByText("3 min ago")).toBeVisible();
  });

  it("stands above the nodes, of which there may be hundreds", async () => {
    mockApi();
    renderApp("/cluster");
    const panel = await screen.findByRole("region", { name: "Readings over time" });
    const nodes = screen.getByRole("region", { name: "Nodes" });
    expect(panel.compareDocumentPosition(nodes)).toBe(Node.DOCUMENT_POSITION_FOLLOWING);
  });

  it("says so where nothing was read", async () => {
    mockApi({ "GET /api/v1/cluster/nodes/n1/metrics": () => ok(nodeMetrics({ curves: [] })) });
    renderApp("/cluster");
    const panel = await screen.findByRole("region", { name: "Readings over time" });
    expect(await within(panel).findByText("No readings in this time")).toBeVisible();
  });
});

describe("idle cards on the cluster page", () => {
  it("are named by job, with a link to it", async () => {
    const cards = [
      idleCard(),
      idleCard({ rank: 2, card: 4 }),
      idleCard({ job_id: "job2", job_name: "other", card: 0 }),
    ];
    mockApi({ "GET /api/v1/cluster/idle-cards": () => ok({ cards }) });
    renderApp("/cluster");
    const notice = await screen.findByRole("region", { name: "Idle cards" });
    expect(notice).toHaveTextContent("2 jobs hold 3 idle cards");
    expect(notice).toHaveTextContent("sleepy card 3 of node-a (rank 1), card 4 of node-a (rank 2); other card 0");
    expect(within(notice).getByRole("link", { name: "sleepy" })).toHaveAttribute("href", "/jobs/job1?tab=performance");
  });
});

describe("the cards of a job", () => {
  const CARDS = { "GET /api/v1/metrics/jobs/job1": () => ok(metrics({ cards: [cardCurve()] })) };

  it("show what they did at each step, energy, slot-hours, and name the idle one", async () => {
    mockApi(CARDS);
    renderApp("/jobs/job1?tab=performance&card=power_watts");
    const panel = await screen.findByRole("region", { name: "Cards" });
    expect(await within(panel).findByRole("img", { name: "Power: 310 W at step 2." })).toBeVisible();
    expect(panel).toHaveTextContent("1 kWh");
    expect(within(panel).getByRole("region", { name: "Idle cards" })).toHaveTextContent("card 1 of node-a (rank 1)");
  });

  it.each([
    { world: 8, asked: 8, text: null },
    { world: 64, asked: 8, text: "Shown are ranks 0–7, as many as there are colours; 56 more ranks are not drawn." },
  ])("draw as many of $world ranks as there are colours, and say how many they leave out", async (each) => {
    const routes = { "GET /api/v1/training/jobs/job1": () => ok(job({ world_size: each.world })) };
    const seen = mockApi({ ...CARDS, ...routes });
    renderApp("/jobs/job1?tab=performance&card=power_watts");
    const panel = await screen.findByRole("region", { name: "Cards" });
    await within(panel).findByRole("img", { name: /^Power/ });
    const ranks = seen.find(({ url }) => url.searchParams.has("cards"))!.url.searchParams.get("ranks")!;
    expect(ranks.split(",")).toHaveLength(each.asked);
    if (each.text === null) expect(panel).not.toHaveTextContent("not drawn");
    else expect(panel).toHaveTextContent(each.text);
  });

  it("draw the ranks that are chosen, or one of each node", async () => {
    const [use] = jobUsage().cards;
    const cards = Array.from({ length: 64 }, (_, rank) => ({
      ...use!,
      rank,
      node_name: `node-${Math.floor(rank / 16)}`,
    }));
    const seen = mockApi({
      ...CARDS,
      "GET /api/v1/training/jobs/job1": () => ok(job({ world_size: 64 })),
      "GET /api/v1/training/jobs/job1/usage": () => ok(jobUsage({ cards })),
    });
    const asked = () =>
      seen
        .filter(({ url }) => url.searchParams.has("cards"))
        .at(-1)!
        .url.searchParams.get("ranks");
    renderApp("/jobs/job1?tab=performance&card=power_watts");
    const panel = await screen.findByRole("region", { name: "Cards" });
    await userEvent.click(await within(panel).findByRole("button", { name: "One per node" }));
    await waitFor(() => expect(asked()).toBe("0,16,32,48"));
    expect(panel).not.toHaveTextContent("not drawn");
    await userEvent.type(within(panel).getByRole("combobox", { name: "Ranks" }), "Rank 37");
    await userEvent.click(await screen.findByRole("option", { name: "Rank 37, node-2", hidden: true }));
    await waitFor(() => expect(asked()).toBe("0,16,32,48,37"));
  });

  it("say that the energy is unknown where no power was read", async () => {
    mockApi({ ...CARDS, "GET /api/v1/training/jobs/job1/usage": () => ok(jobUsage({ energy_joules: null })) });
    renderApp("/jobs/job1?tab=performance");
    const panel = await screen.findByRole("region", { name: "Cards" });
    expect(await within(panel).findByText("unknown")).toBeVisible();
  });
});
