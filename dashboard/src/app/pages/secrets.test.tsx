import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { me, page, secret } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const SECRETS: Routes = {
  "GET /api/v1/auth/me": () => ok({ ...me, role: "member" }),
  "GET /api/v1/secrets": () => ok([secret(), secret({ project: "text", name: "OTHER" })]),
};

/** Puts a text in the place of what a field has. */
async function fill(field: HTMLElement, text: string) {
  await userEvent.clear(field);
  await userEvent.click(field);
  await userEvent.paste(text);
}

it("lists the names of secrets, and sets a new one whose value is not shown", async () => {
  const seen = mockApi({ ...SECRETS, "PUT /api/v1/secrets/vision/WANDB_API_KEY": () => ok(secret()) });
  renderApp("/people?tab=secrets");
  const table = await screen.findByRole("table", { name: "Secrets" });
  for (const text of ["vision", "HF_TOKEN", "vera", "OTHER"]) expect(table).toHaveTextContent(text);
  await userEvent.click(screen.getByRole("button", { name: "New secret" }));
  const dialog = await screen.findByRole("dialog", { name: "New secret" });
  const button = within(dialog).getByRole("button", { name: "Set secret" });
  await fill(within(dialog).getByLabelText(/^Project/), "vision");
  await fill(within(dialog).getByLabelText(/^Name/), "WANDB_API_KEY");
  const value = within(dialog).getByLabelText(/^Value/);
  expect(value).toHaveAttribute("type", "password");
  await fill(value, "short");
  expect(button).toBeDisabled();
  await fill(value, "not-so-short");
  await userEvent.click(button);
  await waitFor(() => expect(screen.queryByRole("dialog", { name: "New secret" })).toBeNull());
  expect(seen.filter(({ method }) => method === "PUT").map(({ body }) => body)).toEqual([{ value: "not-so-short" }]);
});

it("replaces a value of several lines, and says why that is refused", async () => {
  mockApi({
    ...SECRETS,
    "PUT /api/v1/secrets/vision/HF_TOKEN": () => problem(403, "not_the_owner", "secret HF_TOKEN is ada's"),
  });
  renderApp("/people?tab=secrets");
  await userEvent.click(await screen.findByRole("button", { name: "Replace HF_TOKEN of vision" }));
  const dialog = await screen.findByRole("dialog", { name: "Replace HF_TOKEN" });
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "Several lines" }));
  await fill(within(dialog).getByLabelText(/^Value/), "one line\nand another");
  await userEvent.click(within(dialog).getByRole("button", { name: "Set secret" }));
  expect(await within(dialog).findByRole("alert")).toHaveTextContent("HF_TOKEN is ada's");
});

it("deletes a secret after a question", async () => {
  const seen = mockApi({ ...SECRETS, "DELETE /api/v1/secrets/text/OTHER": () => ok(undefined, 200) });
  renderApp("/people?tab=secrets");
  await userEvent.click(await screen.findByRole("button", { name: "Delete OTHER of text" }));
  expect(seen.filter(({ method }) => method === "DELETE")).toEqual([]);
  await userEvent.click(await screen.findByRole("button", { name: "Delete secret" }));
  await waitFor(() => expect(seen.filter(({ method }) => method === "DELETE")).toHaveLength(1));
});

it("has no list for viewers", async () => {
  const seen = mockApi({
    ...SECRETS,
    "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer" }),
    "GET /api/v1/keys": () => ok(page([])),
  });
  renderApp("/people?tab=secrets");
  expect((await screen.findAllByRole("tab")).map((tab) => tab.textContent)).toEqual(["Keys", "Sessions"]);
  expect(seen.filter(({ path }) => path === "/api/v1/secrets")).toEqual([]);
});
