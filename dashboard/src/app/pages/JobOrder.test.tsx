/** Order among many jobs: filters, views, columns, and what is done to several at once. */
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { job, jobSummary, me, page } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const LIST = "/api/v1/training/jobs";
const VIEWS = "/api/v1/training/saved-views";
const DAY_MS = 86_400_000;

/** A running job of ada's, and an ended one. */
function two(routes: Routes = {}): Routes {
  const ended = { id: "job2", name: "mlp-old", state: "completed" as const, ended_at: "2026-11-24T06:00:00Z" };
  return {
    [`GET ${LIST}`]: () => ok({ ...page([jobSummary(), jobSummary(ended)]), total: 312, first: 51 }),
    [`GET ${LIST}/job2`]: () => ok(job(ended)),
    ...routes,
  };
}

async function change(item: string) {
  await userEvent.click(await screen.findByRole("checkbox", { name: "Select all jobs of this page" }));
  expect(screen.getByText("2 selected")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Change" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: item }));
  return screen.findByRole("dialog");
}

describe("filters", () => {
  it("go from the address to the coordinator", async () => {
    const seen = mockApi();
    renderApp(
      "/jobs?project=text,vision&user=ada&model=gpt&label=team=nlp,seed=1,2&since=7d&trials=exclude&archived=include",
    );
    await screen.findByRole("link", { name: "gpt-stdlib" });
    const asked = seen.find(({ path }) => path === LIST)!.url.searchParams;
    const since = Date.parse(asked.get("created_after")!);
    expect(Math.abs(Date.now() - 7 * DAY_MS - since)).toBeLessThan(60_000);
    asked.delete("created_after");
    expect(Object.fromEntries(asked)).toEqual({
      ...{ limit: "50", count: "true", sort: "-created_at", trials: "exclude", archived: "include" },
      ...{ project: "text,vision", user: "ada", model: "gpt", "label.team": "nlp", "label.seed": "1,2" },
    });
  });

  it("stand as chips, each of which can be taken off", async () => {
    mockApi();
    const { router } = renderApp("/jobs?project=text,vision&archived=only");
    await userEvent.click(await screen.findByRole("button", { name: "Project text: remove this filter" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ project: ["vision"], archived: "only" }));
    await userEvent.click(screen.getByRole("button", { name: "Archive Archived jobs only: remove this filter" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ project: ["vision"] }));
  });

  it("are chosen among the values that jobs have", async () => {
    mockApi();
    const { router } = renderApp("/jobs");
    await userEvent.click(await screen.findByRole("button", { name: "Filter" }));
    const menu = await screen.findByRole("dialog", { name: "Filter" });
    await userEvent.click(within(menu).getByRole("combobox", { name: "Label" }));
    await userEvent.click(await within(menu).findByRole("option", { name: "team=nlp" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ label: ["team=nlp"] }));
  });
});

describe("the list", () => {
  it("says where its page is", async () => {
    mockApi(two());
    renderApp("/jobs?cursor=abc");
    expect(await screen.findByText("51–52 of 312")).toBeVisible();
  });

  it("shows duration, user, and the last throughput of ended jobs, and none of paused ones", async () => {
    const jobs = [
      jobSummary({ id: "a", name: "ended", state: "completed", ran_seconds: 125 }),
      jobSummary({ id: "b", name: "resting", state: "paused", ran_seconds: 90 }),
    ];
    mockApi({ [`GET ${LIST}`]: () => ok(page(jobs)) });
    renderApp("/jobs");
    const row = async (name: string) => (await screen.findByRole("link", { name })).closest("tr")!;
    for (const text of ["2 min 05 s", "ada", "12.4k tok/s"]) expect(await row("ended")).toHaveTextContent(text);
    expect(await row("ended")).not.toHaveTextContent("1 min 15 s");
    expect(await row("resting")).toHaveTextContent("1 min 30 s");
    for (const text of ["tok/s", "1 min 15 s"]) expect(await row("resting")).not.toHaveTextContent(text);
  });

  it("has the columns that were chosen, on the next visit too", async () => {
    mockApi();
    const { router, unmount } = renderApp("/jobs");
    await userEvent.click(await screen.findByRole("button", { name: "Columns" }));
    await userEvent.click(await screen.findByRole("checkbox", { name: "Best loss" }));
    await userEvent.click(screen.getByRole("checkbox", { name: "ETA" }));
    await waitFor(() => expect(screen.queryByRole("columnheader", { name: "ETA" })).toBeNull());
    expect(screen.getByRole("columnheader", { name: "Best loss" })).toBeVisible();
    expect((router.state.location.search as { columns: string[] }).columns).toContain("best_loss");
    unmount();
    renderApp("/jobs");
    expect(await screen.findByRole("columnheader", { name: "Best loss" })).toBeVisible();
  });
});

describe("saved views", () => {
  const saved = (part = {}) => ({ name: "Failed", query: "status=failed&columns=loss", ...OWNER, ...part });
  const OWNER = { created_by: "ada", created_by_id: "u1", created_at: "2026-11-24T06:00:00Z" };

  it("are opened by name", async () => {
    mockApi({ [`GET ${VIEWS}`]: () => ok([saved()]) });
    const { router } = renderApp("/jobs?q=gpt");
    await userEvent.click(await screen.findByRole("button", { name: "Views" }));
    await userEvent.click(await screen.findByRole("button", { name: "Failed" }));
    await waitFor(() => expect(router.state.location.search).toEqual({ status: ["failed"], columns: ["loss"] }));
  });

  it("keep what is shown now, without the page and the selection", async () => {
    const seen = mockApi({ [`PUT ${VIEWS}/Text%20team`]: () => ok(saved()) });
    renderApp("/jobs?project=text&sort=name&cursor=abc");
    await userEvent.click(await screen.findByRole("button", { name: "Views" }));
    await userEvent.type(await screen.findByRole("textbox", { name: "Save this view as" }), "Text team");
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() =>
      expect(seen.find(({ method }) => method === "PUT")?.body).toEqual({ query: "project=text&sort=name" }),
    );
  });

  it("are named with any signs that an address can carry", async () => {
    const seen = mockApi({ [`PUT ${VIEWS}/B%C3%A4d%20%23%20view%20%3Cb%3E%3F`]: () => ok(saved()) });
    renderApp("/jobs");
    await userEvent.click(await screen.findByRole("button", { name: "Views" }));
    await userEvent.type(await screen.findByRole("textbox", { name: "Save this view as" }), "Bäd # view <b>?{Enter}");
    await waitFor(() => expect(seen.some(({ method }) => method === "PUT")).toBe(true));
  });

  it.each(["Bäd / view <b>", "a\\b", ".."])("are not saved as %s, with the reason at the field", async (name) => {
    const seen = mockApi();
    renderApp("/jobs");
    await userEvent.click(await screen.findByRole("button", { name: "Views" }));
    const field = await screen.findByRole("textbox", { name: "Save this view as" });
    await userEvent.type(field, `${name}{Enter}`);
    expect(field).toHaveAccessibleDescription(/^Invalid name .*: 1 to 64 characters; no '\/'/);
    expect(screen.getByRole("button", { name: "Save" })).toBeDisabled();
    expect(seen.filter(({ method }) => method === "PUT")).toEqual([]);
  });

  it("of others are not offered for deletion to members", async () => {
    const member = { ...me, role: "member", user_id: "u9", members_may: "own" };
    mockApi({ [`GET ${VIEWS}`]: () => ok([saved()]), "GET /api/v1/auth/me": () => ok(member) });
    renderApp("/jobs");
    await userEvent.click(await screen.findByRole("button", { name: "Views" }));
    await screen.findByRole("button", { name: "Failed" });
    expect(screen.queryByRole("button", { name: "Delete view Failed" })).toBeNull();
  });

  it("of others are replaced only where that is said before", async () => {
    mockApi({ [`GET ${VIEWS}`]: () => ok([saved({ created_by: "bob", created_by_id: "u2" })]) });
    renderApp("/jobs");
    await userEvent.click(await screen.findByRole("button", { name: "Views" }));
    await screen.findByRole("button", { name: "Failed" });
    const field = await screen.findByRole("textbox", { name: "Save this view as" });
    await userEvent.type(field, "Failed");
    expect(field).toHaveAccessibleDescription("This replaces the view of bob.");
    expect(screen.getByRole("button", { name: "Replace" })).toBeEnabled();
    await userEvent.type(field, " 2");
    expect(screen.getByRole("button", { name: "Save" })).toBeEnabled();
  });
});

describe("several jobs at once", () => {
  it("are cancelled as far as they can be, and the others named with the reason", async () => {
    const seen = mockApi(two({ [`DELETE ${LIST}/job1`]: () => ok(job({ desired: "cancel" })) }));
    const { router } = renderApp("/jobs");
    const dialog = await change("Cancel…");
    expect(await within(dialog).findByText("mlp-old: It has ended: completed.")).toBeVisible();
    await userEvent.click(within(dialog).getByRole("button", { name: "Cancel jobs" }));
    await waitFor(() => expect(router.state.location.search).toEqual({}));
    expect(seen.filter(({ method }) => method === "DELETE").map(({ path }) => path)).toEqual([`${LIST}/job1`]);
  });

  it("stay selected where the coordinator refuses one, with its reason", async () => {
    const refused = () => problem(403, "not_the_owner", "job mlp-old is bob's");
    mockApi(two({ [`DELETE ${LIST}/job2/data`]: refused }));
    renderApp("/jobs");
    const dialog = await change("Delete data…");
    await within(dialog).findByText(/gpt-stdlib: It is running/);
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete data" }));
    expect(await within(dialog).findByRole("alert")).toHaveTextContent("mlp-old: job mlp-old is bob's");
    await userEvent.click(within(dialog).getAllByRole("button", { name: "Close" })[0]!);
    expect(screen.getByText("2 selected")).toBeVisible();
  });

  it("get labels and a project", async () => {
    const patched = (id: string) => ({ [`PATCH ${LIST}/${id}`]: () => ok(job({ id })) });
    const seen = mockApi(two({ ...patched("job1"), ...patched("job2") }));
    renderApp("/jobs");
    const dialog = await change("Label or move…");
    await userEvent.type(within(dialog).getByRole("combobox", { name: "Add labels" }), "team=cv{Enter}");
    await userEvent.type(within(dialog).getByRole("combobox", { name: "Remove labels" }), "old{Enter}");
    await userEvent.type(within(dialog).getByRole("textbox", { name: "Move to project" }), "vision");
    await userEvent.click(within(dialog).getByRole("button", { name: "Apply" }));
    const edit = { labels: { team: "cv", old: null }, project: "vision" };
    await waitFor(() =>
      expect(seen.filter(({ method }) => method === "PATCH").map(({ body }) => body)).toEqual([edit, edit]),
    );
  });

  it("are no viewer's to change", async () => {
    mockApi(two({ "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer" }) }));
    renderApp("/jobs?pick=job1,job2");
    const change = await screen.findByRole("button", { name: "Change" });
    expect(change).toHaveAccessibleDescription(/Your role is viewer/);
    await userEvent.click(change);
    expect(screen.queryByRole("menu")).toBeNull();
    expect(screen.getByRole("link", { name: "Compare 2 jobs" })).toBeVisible();
  });
});

describe("a job's page", () => {
  it("changes what the job is called and filed under, and sends nothing else", async () => {
    const changed = job({ priority: 80, labels: { team: "nlp" }, notes: "Try first" });
    const seen = mockApi({ [`PATCH ${LIST}/job1`]: () => ok(changed) });
    renderApp("/jobs/job1");
    await userEvent.click(await screen.findByRole("button", { name: "Edit name, labels, priority and notes" }));
    const dialog = await screen.findByRole("dialog");
    expect(within(dialog).getByRole("button", { name: "Save" })).toBeDisabled();
    await userEvent.clear(within(dialog).getByRole("textbox", { name: "Priority" }));
    await userEvent.type(within(dialog).getByRole("textbox", { name: "Priority" }), "80");
    await userEvent.type(within(dialog).getByRole("textbox", { name: "Notes" }), "Try first");
    await userEvent.click(within(dialog).getByRole("button", { name: "Save" }));
    await waitFor(() =>
      expect(seen.find(({ method }) => method === "PATCH")?.body).toEqual({ priority: 80, notes: "Try first" }),
    );
  });

  it("of a paused job claims neither an ETA nor a live stream", async () => {
    mockApi({ [`GET ${LIST}/job1`]: () => ok(job({ state: "paused", desired: "pause", ran_seconds: 95 })) });
    renderApp("/jobs/job1");
    expect(await screen.findByText("1 min 35 s")).toBeVisible();
    expect(screen.getByText("before it was paused")).toBeVisible();
    for (const claim of ["ETA", "Throughput", "live", "connecting"]) expect(screen.queryByText(claim)).toBeNull();
  });
});
