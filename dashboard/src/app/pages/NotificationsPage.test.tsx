import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import { delivery, me, notificationChannel, notificationRule, page } from "@/testing/fixtures";
import { mockApi, ok, problem, type Routes } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const ROOT = "/api/v1/notifications";
const NEWS: Routes = {
  [`GET ${ROOT}/channels`]: () => ok([notificationChannel()]),
  [`GET ${ROOT}/rules`]: () => ok([notificationRule()]),
  [`GET ${ROOT}/deliveries`]: () => ok(page([delivery()])),
};
const sent = (seen: ReturnType<typeof mockApi>, method: string, path: string) =>
  seen.filter((each) => each.method === method && each.path === `${ROOT}${path}`).map(({ body }) => body);
const MEMBER: Routes = { "GET /api/v1/auth/me": () => ok({ ...me, role: "member", user_id: "u9", name: "vera" }) };

describe("channels", () => {
  it("are added, and the secret of a webhook is shown once", async () => {
    const made = { ...notificationChannel({ name: "hook", kind: "webhook" }), secret: "whsec_abc" };
    const seen = mockApi({ ...NEWS, [`POST ${ROOT}/channels`]: () => ok(made, 201) });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "New channel" }));
    const dialog = await screen.findByRole("dialog", { name: "New channel" });
    await userEvent.type(within(dialog).getByLabelText(/^Name/), "hook");
    await userEvent.click(within(dialog).getByLabelText(/^Address/));
    await userEvent.paste(" https://hooks.example.org/x ");
    await userEvent.click(within(dialog).getByRole("button", { name: "Create channel" }));
    expect(await within(dialog).findByText("whsec_abc")).toBeVisible();
    expect(sent(seen, "POST", "/channels")).toEqual([
      { name: "hook", kind: "webhook", url: "https://hooks.example.org/x", recipients: [], for_members: true },
    ]);
  });

  it("take e-mail addresses however they are separated, and a refusal keeps what was typed", async () => {
    const refusal = problem(422, "no_mail_server", "e-mail needs a mail server: set PACELINE_SMTP_HOST");
    const seen = mockApi({ ...NEWS, [`POST ${ROOT}/channels`]: () => refusal });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "New channel" }));
    const dialog = await screen.findByRole("dialog", { name: "New channel" });
    await userEvent.type(within(dialog).getByLabelText(/^Name/), "ops");
    await userEvent.click(within(dialog).getByRole("radio", { name: /E-mail/ }));
    const field = within(dialog).getByLabelText(/^E-mail addresses/);
    await userEvent.click(field);
    await userEvent.paste("a@example.org, b@example.org; a@example.org");
    await userEvent.click(within(dialog).getByRole("button", { name: "Create channel" }));
    expect(await within(dialog).findByRole("alert")).toHaveTextContent("PACELINE_SMTP_HOST");
    expect(field).toHaveValue("a@example.org, b@example.org; a@example.org");
    expect(sent(seen, "POST", "/channels")).toEqual([
      { name: "ops", kind: "email", url: null, recipients: ["a@example.org", "b@example.org"], for_members: true },
    ]);
  });

  it("are refused by the label of the field, and another kind is not refused for the first one", async () => {
    const refusal = problem(422, "invalid_request", "/url: must begin with https://", [
      { pointer: "/url", detail: "must begin with https://" },
    ]);
    mockApi({ ...NEWS, [`POST ${ROOT}/channels`]: () => refusal });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "New channel" }));
    const dialog = await screen.findByRole("dialog", { name: "New channel" });
    await userEvent.type(within(dialog).getByLabelText(/^Name/), "hook");
    await userEvent.type(within(dialog).getByLabelText(/^Address/), "x");
    await userEvent.click(within(dialog).getByRole("button", { name: "Create channel" }));
    expect(await within(dialog).findByRole("alert")).toHaveTextContent("Address: must begin with https://");
    await userEvent.click(within(dialog).getByRole("radio", { name: /E-mail/ }));
    expect(within(dialog).queryByRole("alert")).toBeNull();
  });

  it("are tested, and the answer is shown", async () => {
    const told = delivery({ event: "test", state: "failed", answer: "HTTP 404: no_service" });
    mockApi({ ...NEWS, [`POST ${ROOT}/channels/c1/test`]: () => ok(told) });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "Test team" }));
    expect(await screen.findByText(/HTTP 404: no_service/)).toBeVisible();
  });

  it("are deleted after a question", async () => {
    const seen = mockApi({ ...NEWS, [`DELETE ${ROOT}/channels/c1`]: () => ok(undefined) });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "Delete team" }));
    expect(sent(seen, "DELETE", "/channels/c1")).toEqual([]);
    await userEvent.click(await screen.findByRole("button", { name: "Delete channel" }));
    await waitFor(() => expect(sent(seen, "DELETE", "/channels/c1")).toHaveLength(1));
  });
});

describe("rules", () => {
  it("changes one in place, from what it is", async () => {
    const rule = notificationRule();
    const seen = mockApi({ ...NEWS, [`PUT ${ROOT}/rules/${rule.id}`]: () => ok(rule) });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: /^Change the rule/ }));
    const dialog = await screen.findByRole("dialog", { name: "Change rule" });
    await userEvent.click(within(dialog).getByRole("checkbox", { name: "Loss is NaN or infinite" }));
    await userEvent.click(within(dialog).getByRole("button", { name: "Save rule" }));
    await waitFor(() =>
      expect(sent(seen, "PUT", `/rules/${rule.id}`)).toMatchObject([
        { channel: rule.channel_id, events: [...rule.events, "nan"] },
      ]),
    );
  });

  it("can be made where the channels come after the dialog was opened", async () => {
    let come!: (reply: ReturnType<typeof ok>) => void;
    const late = new Promise<ReturnType<typeof ok>>((resolve) => (come = resolve));
    const seen = mockApi({
      ...NEWS,
      [`GET ${ROOT}/channels`]: () => late,
      [`POST ${ROOT}/rules`]: () => ok(notificationRule(), 201),
    });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "New rule" }));
    const create = within(await screen.findByRole("dialog")).getByRole("button", { name: "Create rule" });
    expect(create).toBeDisabled();
    come(ok([notificationChannel()]));
    await waitFor(() => expect(create).toBeEnabled());
    await userEvent.click(create);
    await waitFor(() => expect(sent(seen, "POST", "/rules")).toMatchObject([{ channel: "c1", events: ["failed"] }]));
  });

  it("are made of events with their thresholds", async () => {
    const seen = mockApi({ ...NEWS, [`POST ${ROOT}/rules`]: () => ok(notificationRule(), 201) });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "New rule" }));
    const dialog = await screen.findByRole("dialog", { name: "New rule" });
    await userEvent.click(within(dialog).getByRole("checkbox", { name: "Queued longer than…" }));
    const minutes = within(dialog).getByLabelText(/^Minutes in the queue/);
    await userEvent.clear(minutes);
    await userEvent.type(minutes, "soon");
    expect(within(dialog).getByRole("button", { name: "Create rule" })).toBeDisabled();
    await userEvent.clear(minutes);
    await userEvent.type(minutes, "45");
    await userEvent.type(within(dialog).getByLabelText(/^Project/), "vision");
    await userEvent.click(within(dialog).getByRole("button", { name: "Create rule" }));
    await waitFor(() =>
      expect(sent(seen, "POST", "/rules")).toEqual([
        {
          channel: "c1",
          events: ["failed", "queued_long"],
          mine: false,
          project: "vision",
          queued_minutes: 45,
          goodput_below: null,
        },
      ]),
    );
  });

  it("of a member are about their own jobs", async () => {
    const seen = mockApi({ ...NEWS, ...MEMBER, [`POST ${ROOT}/rules`]: () => ok(notificationRule(), 201) });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: "New rule" }));
    const dialog = await screen.findByRole("dialog", { name: "New rule" });
    expect(within(dialog).queryByRole("checkbox", { name: /disk low/ })).toBeNull();
    expect(within(dialog).getByRole("checkbox", { name: /Only jobs that I submitted/ })).toBeDisabled();
    await userEvent.click(within(dialog).getByRole("button", { name: "Create rule" }));
    await waitFor(() => expect(sent(seen, "POST", "/rules")).toMatchObject([{ mine: true }]));
  });

  it("of another admin name whose jobs they would be about", async () => {
    const theirs = notificationRule({ created_by: "bob", created_by_id: "u2" });
    mockApi({ ...NEWS, [`GET ${ROOT}/rules`]: () => ok([theirs]) });
    renderApp("/notifications");
    await userEvent.click(await screen.findByRole("button", { name: /^Change the rule/ }));
    const dialog = await screen.findByRole("dialog", { name: "Change rule" });
    expect(within(dialog).getByRole("checkbox", { name: "Only jobs of bob" })).not.toBeChecked();
  });
});

describe("the history", () => {
  it("says what was answered, and sends again", async () => {
    const again = delivery({ id: "d2", state: "pending", attempts: 0, answer: null });
    const seen = mockApi({ ...NEWS, [`POST ${ROOT}/deliveries/d1/send-again`]: () => ok(again, 201) });
    renderApp("/notifications");
    const table = await screen.findByRole("table", { name: "History" });
    for (const text of ["KeyError", "HTTP 500: down (attempt 8)"]) expect(table).toHaveTextContent(text);
    await userEvent.click(within(table).getByRole("button", { name: /^Send again/ }));
    await waitFor(() => expect(sent(seen, "POST", "/deliveries/d1/send-again")).toHaveLength(1));
  });

  it("sends once for a double click", async () => {
    vi.useFakeTimers({ toFake: ["Date"] }); // a loaded machine takes longer from one click to the next than a person
    const seen = mockApi({ ...NEWS, [`POST ${ROOT}/deliveries/d1/send-again`]: () => ok(delivery(), 202) });
    renderApp("/notifications");
    const again = await screen.findByRole("button", { name: /^Send again/ });
    await userEvent.click(again);
    await waitFor(() => expect(again).not.toHaveAttribute("data-loading"));
    await userEvent.click(again);
    const requests = () => seen.filter(({ method }) => method === "POST");
    await waitFor(() => expect(requests()).toHaveLength(2));
    expect(new Set(requests().map(({ headers }) => headers.get("Idempotency-Key"))).size).toBe(1);
  });

  it("is that of the channel in the address bar", async () => {
    const seen = mockApi(NEWS);
    renderApp("/notifications?channel=c1");
    await screen.findByRole("table", { name: "History" });
    expect(seen.find(({ path }) => path === `${ROOT}/deliveries`)?.url.searchParams.get("channel")).toBe("c1");
  });
});

it("tells a viewer what they may not do, and why", async () => {
  const viewer: Routes = { "GET /api/v1/auth/me": () => ok({ ...me, role: "viewer", user_id: "u9" }) };
  mockApi({ ...NEWS, ...viewer });
  renderApp("/notifications");
  for (const name of [
    "New channel",
    "New rule",
    "Test team",
    "Delete team",
    /^Change the rule/,
    /^Delete the rule/,
    /^Send again/,
  ]) {
    const button = await screen.findByRole("button", { name });
    expect(button).toHaveAttribute("aria-disabled", "true");
    expect(button).toHaveAccessibleDescription(/only|Only/);
  }
});
