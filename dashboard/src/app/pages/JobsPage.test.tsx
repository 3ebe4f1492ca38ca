import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { experiment, hang, jobSummary, page, silentNode } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const LIST = "/api/v1/training/jobs";
const EXPERIMENT = "01JD0000000000000000000001";

describe("the jobs list", () => {
  it("asks for what the URL says", async () => {
    const seen = mockApi();
    renderApp("/jobs?status=running,paused&q=gpt&sort=name&cursor=abc");
    await screen.findByRole("link", { name: "gpt-stdlib" });
    const query = Object.fromEntries(seen.find(({ path }) => path === LIST)!.url.searchParams);
    expect(query).toEqual({
      status: "running,paused",
      q: "gpt",
      sort: "name",
      cursor: "abc",
      limit: "50",
      count: "true",
    });
  });

  it("has the trials of one experiment, named by a chip that shows all jobs again", async () => {
    const seen = mockApi({ [`GET /api/v1/experiments/${EXPERIMENT}`]: () => ok(experiment()) });
    const { router } = renderApp(`/jobs?experiment=${EXPERIMENT}&sort=name`);
    const asked = () => seen.findLast(({ path }) => path === LIST)!.url.searchParams.get("experiment");
    const chip = await screen.findByRole("button", { name: "Experiment ddp-versus-fsdp: remove this filter" });
    expect(asked()).toBe(EXPERIMENT);
    await userEvent.click(chip);
    await waitFor(() => expect(router.state.location.search).toEqual({ sort: "name" }));
    await waitFor(() => expect(asked()).toBeNull());
    expect(screen.queryByRole("button", { name: /remove this filter/ })).toBeNull();
  });

  it("drops what the URL cannot mean", async () => {
    const seen = mockApi();
    renderApp("/jobs?status=nonsense&sort=color");
    await screen.findByRole("link", { name: "gpt-stdlib" });
    expect(Object.fromEntries(seen.find(({ path }) => path === LIST)!.url.searchParams)).toEqual({
      sort: "-created_at",
      limit: "50",
      count: "true",
    });
  });

  it("shows state, progress, loss, throughput and ETA", async () => {
    mockApi();
    renderApp("/jobs");
    const row = (await screen.findByRole("link", { name: "gpt-stdlib" })).closest("tr")!;
    for (const text of ["running", "134 / 400", "33%", "2.5", "12.4k tok/s", "1 min 15 s"])
      expect(row).toHaveTextContent(text);
    expect(screen.getByRole("progressbar", { name: "Progress of gpt-stdlib" })).toHaveAttribute("aria-valuenow", "33");
  });

  it("marks jobs that seem to hang, and those with a silent node", async () => {
    mockApi({ [`GET ${LIST}`]: () => ok(page([jobSummary({ hang: hang(), silent_nodes: [silentNode()] })])) });
    renderApp("/jobs");
    const row = (await screen.findByRole("link", { name: "gpt-stdlib" })).closest("tr")!;
    expect(within(row).getByText("Seems to hang")).toHaveAttribute("title", hang().message);
    expect(within(row).getByText("Node node-b is silent")).toHaveAttribute("title", silentNode().message);
  });

  it("puts NaN in the place of a loss that is not finite, and a spike below it", async () => {
    const { progress } = jobSummary();
    const spike = { step: 1210, kind: "spike", act: "warn", what: "the loss of step 1210 is 9", done: "told" } as const;
    const bad_loss = { ...spike, sample_ids: [], samples: 0 };
    const jobs = [
      jobSummary({ id: "1", name: "spoilt", progress: { ...progress, not_finite_step: 61 } }),
      jobSummary({ id: "2", name: "spiky", progress: { ...progress, bad_loss } }),
      jobSummary({
        id: "3",
        name: "held-back",
        progress: { ...progress, bad_loss: { ...bad_loss, kind: "not_finite", step: 62, act: "skip_update" } },
      }),
      jobSummary({ id: "4", name: "mended", strategy: "script", progress: { ...progress, not_finite_step: 61 } }),
      jobSummary({
        id: "5",
        name: "lost",
        strategy: "script",
        progress: { ...progress, loss: "NaN", not_finite_step: 61 },
      }),
    ];
    mockApi({ [`GET ${LIST}`]: () => ok(page(jobs)) });
    renderApp("/jobs");
    const cell = (name: string) => {
      const row = screen.getByRole("link", { name }).closest("tr")!;
      const heads = within(row.closest("table")!).getAllByRole("columnheader");
      return row.querySelectorAll("td, th")[heads.findIndex((head) => head.textContent === "Loss")];
    };
    await screen.findByRole("link", { name: "spoilt" });
    const shown = Object.fromEntries(jobs.map(({ name }) => [name, cell(name)!.textContent]));
    expect(shown).toEqual({
      spoilt: "NaN",
      spiky: "2.5spike at 1,210",
      "held-back": "2.5NaN at 62",
      mended: "2.5",
      lost: "NaN",
    });
    expect(within(cell("spoilt") as HTMLElement).getByTitle("The loss is not finite since step 61")).toBeVisible();
    expect(within(cell("spiky") as HTMLElement).getByTitle("the loss of step 1210 is 9: told")).toBeVisible();
  });

  it("turns pages by cursor and starts anew when the order changes", async () => {
    mockApi({
      [`GET ${LIST}`]: ({ url }) => ok(page([jobSummary()], url.searchParams.get("cursor") ? null : "page-2")),
    });
    const { router } = renderApp("/jobs");
    await userEvent.click(await screen.findByRole("button", { name: "Next page" }));
    await waitFor(() => expect(router.state.location.search).toMatchObject({ cursor: "page-2" }));
    await userEvent.click(screen.getByRole("button", { name: "Job" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ sort: "name" }));
  });

  it("opens the palette with Ctrl-K and goes where it says", async () => {
    mockApi();
    const { router } = renderApp("/jobs");
    await screen.findByRole("link", { name: "gpt-stdlib" });
    await userEvent.keyboard("{Control>}k{/Control}");
    await userEvent.type(await screen.findByRole("combobox", { name: "Command" }), "clus{Enter}");
    await waitFor(() => expect(router.state.location.pathname).toBe("/cluster"));
  });

  it("takes what is typed right behind Ctrl-K, by the fastest of hands", async () => {
    mockApi();
    renderApp("/jobs");
    await screen.findByRole("link", { name: "gpt-stdlib" });
    await userEvent.setup({ delay: null }).keyboard("{Control>}k{/Control}clus");
    expect(screen.getByRole("combobox", { name: "Command" })).toHaveValue("clus");
  });
});
