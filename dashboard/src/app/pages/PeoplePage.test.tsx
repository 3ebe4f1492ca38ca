import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { apiKey, auditEntry, browserSession, me, page, user } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const ada = user({ id: "u1", name: "ada", role: "admin" });
const PEOPLE: Routes = {
  "GET /api/v1/users": () => ok(page([ada, user()])),
  "GET /api/v1/keys": () => ok(page([apiKey(), apiKey({ id: "k2", name: "old", revoked_at: "2026-01-01T00:00:00Z" })])),
  "GET /api/v1/sessions": () =>
    ok(page([browserSession(), browserSession({ id: "s2", current: true, user_name: "ada" })])),
  "GET /api/v1/audit": () => ok(page([auditEntry()])),
};
const sent = (seen: ReturnType<typeof mockApi>, method: string, path: string) =>
  seen.filter((each) => each.method === method && each.path === path).map(({ body }) => body);

describe("users", () => {
  it("are created, and sign in with a link that is shown at once", async () => {
    const seen = mockApi({
      ...PEOPLE,
      "POST /api/v1/users": () => ok(user({ id: "u3", name: "bob", role: "member" }), 201),
      "POST /api/v1/users/u3/login-link": () =>
        ok({ url: "http://paceline/login?token=secret", expires_at: "2026-11-20T12:15:00Z" }, 201),
    });
    renderApp("/people");
    await userEvent.click(await screen.findByRole("button", { name: "New user" }));
    const dialog = await screen.findByRole("dialog", { name: "New user" });
    await userEvent.type(within(dialog).getByLabelText(/Name/), "bob");
    await userEvent.click(within(dialog).getByRole("button", { name: "Create user" }));
    expect(await screen.findByText("http://paceline/login?token=secret")).toBeVisible();
    expect(sent(seen, "POST", "/api/v1/users")).toEqual([{ name: "bob", role: "member" }]);
  });

  it("have a name that the coordinator takes; a refusal names the field and not its pointer", async () => {
    const message = "Invalid value 'ada!': use 1 to 63 letters";
    mockApi({
      ...PEOPLE,
      "POST /api/v1/users": () =>
        problem(422, "invalid_request", `/name: ${message}`, [{ pointer: "/name", message, code: "x", hint: null }]),
    });
    renderApp("/people");
    await userEvent.click(await screen.findByRole("button", { name: "New user" }));
    const dialog = await screen.findByRole("dialog", { name: "New user" });
    await userEvent.type(within(dialog).getByLabelText(/Name/), "ada!");
    await userEvent.click(within(dialog).getByRole("button", { name: "Create user" }));
    expect(await within(dialog).findByRole("alert")).toHaveTextContent(/^Name: Invalid value 'ada!'/);
  });

  it("get another role, and a refusal is said in their row", async () => {
    const seen = mockApi({
      ...PEOPLE,
      "PATCH /api/v1/users/u1": () =>
        problem(409, "last_admin", "ada is the last admin; make somebody else admin first"),
      "PATCH /api/v1/users/u2": () => ok(user({ role: "member" })),
    });
    renderApp("/people");
    await userEvent.selectOptions(await screen.findByRole("combobox", { name: "Role of vera" }), "Member");
    await waitFor(() => expect(sent(seen, "PATCH", "/api/v1/users/u2")).toEqual([{ role: "member" }]));
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Role of ada" }), "Viewer");
    expect(await screen.findByRole("alert")).toHaveTextContent("ada is the last admin; make somebody else admin first");
  });

  it("are disabled after a question, but not by themselves", async () => {
    const seen = mockApi({ ...PEOPLE, "PATCH /api/v1/users/u2": () => ok(user({ disabled: true })) });
    renderApp("/people");
    const own = await screen.findByRole("button", { name: "Disable ada" });
    expect(own).toHaveAttribute("aria-disabled", "true");
    expect(own).toHaveAccessibleDescription("You cannot lock yourself out.");
    await userEvent.click(screen.getByRole("button", { name: "Disable vera" }));
    expect(sent(seen, "PATCH", "/api/v1/users/u2")).toEqual([]);
    await userEvent.click(await screen.findByRole("button", { name: "Disable user" }));
    await waitFor(() => expect(sent(seen, "PATCH", "/api/v1/users/u2")).toEqual([{ disabled: true }]));
  });
});

describe("API keys", () => {
  it("are made for a purpose and shown once", async () => {
    const seen = mockApi({ ...PEOPLE, "POST /api/v1/keys": () => ok({ ...apiKey(), key: "pk_secret" }, 201) });
    renderApp("/people?tab=keys");
    await userEvent.click(await screen.findByRole("button", { name: "New API key" }));
    const dialog = await screen.findByRole("dialog", { name: "New API key" });
    await userEvent.type(within(dialog).getByLabelText(/^Name/), "ci");
    await userEvent.click(within(dialog).getByRole("button", { name: "Create key" }));
    expect(await within(dialog).findByText("pk_secret")).toBeVisible();
    expect(sent(seen, "POST", "/api/v1/keys")).toEqual([{ name: "ci", role: "member", expires_in_days: 90 }]);
  });

  it("are made once for two clicks, and shown", async () => {
    const seen = mockApi({ ...PEOPLE, "POST /api/v1/keys": () => ok({ ...apiKey(), key: "pk_secret" }, 201) });
    renderApp("/people?tab=keys");
    await userEvent.click(await screen.findByRole("button", { name: "New API key" }));
    const dialog = await screen.findByRole("dialog", { name: "New API key" });
    await userEvent.type(within(dialog).getByLabelText(/^Name/), "ci");
    const create = within(dialog).getByRole("button", { name: "Create key" });
    fireEvent.click(create);
    fireEvent.click(create);
    expect(await within(dialog).findByText("pk_secret")).toBeVisible();
    expect(sent(seen, "POST", "/api/v1/keys")).toHaveLength(1);
  });

  it("that are over are listed when they are asked for", async () => {
    mockApi(PEOPLE);
    renderApp("/people?tab=keys");
    const table = await screen.findByRole("table", { name: "API keys" });
    expect(table).toHaveTextContent("laptop");
    expect(table).not.toHaveTextContent("old");
    await userEvent.click(screen.getByRole("checkbox", { name: "Revoked and expired" }));
    expect(table).toHaveTextContent("revoked");
  });

  it("are revoked after a question", async () => {
    const seen = mockApi({ ...PEOPLE, "DELETE /api/v1/keys/k1": () => ok(undefined, 200) });
    renderApp("/people?tab=keys");
    await userEvent.click(await screen.findByRole("button", { name: "Revoke laptop (pk_abc123)" }));
    await userEvent.click(await screen.findByRole("button", { name: "Revoke key" }));
    await waitFor(() => expect(sent(seen, "DELETE", "/api/v1/keys/k1")).toHaveLength(1));
  });
});

describe("sessions and the audit", () => {
  it("name browser, address and way in, and can be ended", async () => {
    const seen = mockApi({ ...PEOPLE, "DELETE /api/v1/sessions/0123456789abcdef0123": () => ok(undefined, 200) });
    renderApp("/people?tab=sessions");
    const table = await screen.findByRole("table", { name: "Sessions" });
    for (const text of ["Firefox on Linux", "192.0.2.7", "Login link", "(this one)"])
      expect(table).toHaveTextContent(text);
    await userEvent.click(screen.getByRole("button", { name: "End the session of vera, Firefox on Linux" }));
    await userEvent.click(await screen.findByRole("button", { name: "End session" }));
    await waitFor(() => expect(sent(seen, "DELETE", "/api/v1/sessions/0123456789abcdef0123")).toHaveLength(1));
  });

  it("say who did what from where, filtered by the address bar, and go back page by page", async () => {
    const seen = mockApi({
      ...PEOPLE,
      "GET /api/v1/audit": ({ url }) =>
        ok(
          url.searchParams.get("cursor")
            ? page([auditEntry({ seq: 3, message: "ada signed in" })])
            : { items: [auditEntry()], next_cursor: "older" },
        ),
    });
    renderApp("/people?tab=audit&user=ada&action=key");
    const table = await screen.findByRole("table", { name: "Audit" });
    for (const text of ["key.revoked", "192.0.2.7", "Firefox on Linux"]) expect(table).toHaveTextContent(text);
    await userEvent.click(screen.getByRole("button", { name: "Show older" }));
    await waitFor(() => expect(table).toHaveTextContent("ada signed in"));
    const asked = seen.filter(({ path }) => path === "/api/v1/audit").map(({ url }) => url.searchParams);
    expect(asked.map((each) => [each.get("user"), each.get("action"), each.get("cursor")])).toEqual([
      ["ada", "key", null],
      ["ada", "key", "older"],
    ]);
  });
});

it("shows a viewer their own keys and sessions, and asks for nothing else", async () => {
  const seen = mockApi({ ...PEOPLE, "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer" }) });
  renderApp("/people?tab=audit");
  expect(await screen.findByRole("table", { name: "API keys" })).toBeVisible();
  expect(screen.getAllByRole("tab").map((tab) => tab.textContent)).toEqual(["Keys", "Sessions"]);
  await userEvent.click(screen.getByRole("button", { name: "New API key" }));
  expect((await screen.findAllByRole("radio")).map((radio) => radio.getAttribute("value"))).toEqual(["viewer"]);
  expect(seen.filter(({ path }) => ["/api/v1/users", "/api/v1/audit"].includes(path))).toEqual([]);
});
