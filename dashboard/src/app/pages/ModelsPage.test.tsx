import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { me, modelVersion, page } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const MODELS = "/api/v1/models";

function registry(routes: Routes = {}) {
  const versions = [modelVersion({ number: 2, aliases: ["production"] }), modelVersion()];
  return mockApi({
    [`GET ${MODELS}`]: () =>
      ok(page([{ name: "gpt", versions, created_by: "ada", created_at: modelVersion().created_at }])),
    ...routes,
  });
}

describe("the models", () => {
  it("says how to register one where there are none", async () => {
    mockApi({ [`GET ${MODELS}`]: () => ok(page([])) });
    renderApp("/models");
    expect(await screen.findByText("No models yet")).toBeVisible();
  });

  it("shows versions with their aliases and where they came from", async () => {
    registry();
    renderApp("/models");
    const table = await screen.findByRole("table", { name: "Versions of gpt" });
    const newest = within(table).getAllByRole("row")[1]!;
    expect(newest).toHaveTextContent("production");
    expect(newest).toHaveTextContent("loss 0.5");
    expect(within(newest).getByRole("link", { name: "gpt-long" })).toHaveAttribute(
      "href",
      "/jobs/job1?tab=checkpoints",
    );
    expect(within(newest).getByRole("link", { name: "Download gpt:2" })).toHaveAttribute(
      "href",
      "/api/v1/checkpoints/c1/download?format=safetensors",
    );
  });

  it("moves an alias", async () => {
    const seen = registry({ [`PUT ${MODELS}/gpt/aliases/production`]: () => ok({}) });
    renderApp("/models");
    await userEvent.click(await screen.findByRole("button", { name: "Aliases of gpt:1" }));
    await userEvent.click(screen.getByRole("button", { name: "Move here" }));
    expect(seen.find(({ method }) => method === "PUT")!.body).toEqual({ version: 1 });
  });

  it("registers what a link names, and keeps what was typed when it is refused", async () => {
    const seen = registry({ [`POST ${MODELS}`]: () => problem(409, "checkpoint_not_usable", "it is damaged") });
    renderApp("/models?checkpoint=c9");
    await userEvent.type(await screen.findByRole("textbox", { name: "Model" }), "gpt");
    await userEvent.click(screen.getByRole("button", { name: "Register" }));
    expect(await screen.findByRole("alert")).toHaveTextContent("it is damaged");
    expect(screen.getByRole("textbox", { name: "Model" })).toHaveValue("gpt");
    expect(seen.find(({ method }) => method === "POST")!.body).toMatchObject({ name: "gpt", checkpoint_id: "c9" });
  });

  it("lets viewers look and download only", async () => {
    registry({ "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer" }) });
    renderApp("/models");
    expect(await screen.findByRole("button", { name: "Delete gpt:1" })).toHaveAttribute("aria-disabled", "true");
    expect(screen.getByRole("link", { name: "Download gpt:1" })).toBeVisible();
  });
});
