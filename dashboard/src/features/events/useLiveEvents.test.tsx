import { act, screen, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { api } from "@/lib/client";
import { FakeSocket } from "@/testing/fakeSocket";
import { apiKey, me, page } from "@/testing/fixtures";
import { mockApi, never, ok } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";
import { openForm } from "@/testing/submitForm";
import { EVENTS_STREAM_PATH } from "./api/events";

it("asks again for what it may have missed as the stream begins, but for no schema and no plan", async () => {
  const { seen, client } = await openForm();
  // Parts of the form that a loaded machine draws after a second would ask again for what they show by themselves.
  client.setDefaultOptions({ queries: { ...client.getDefaultOptions().queries, staleTime: Infinity } });
  const asked = (path: string) => seen.filter((request) => request.path === `/api/v1${path}`).length;
  await waitFor(() => expect([asked("/training/plan") > 0, client.isFetching()]).toEqual([true, 0]));
  const [me, schema, plan] = [asked("/auth/me"), asked("/training/spec-schema"), asked("/training/plan")];
  act(() => FakeSocket.to(EVENTS_STREAM_PATH).hello(7));
  await waitFor(() => expect([asked("/auth/me"), client.isFetching()]).toEqual([me + 1, 0]));
  expect([asked("/training/spec-schema"), asked("/training/plan")]).toEqual([schema, plan]);

  // Another coordinator may have another schema, and lacks what happened before it began.
  act(() => FakeSocket.to(EVENTS_STREAM_PATH).send({ type: "reset" }));
  await waitFor(() => expect(asked("/training/spec-schema")).toBe(schema + 1));
});

it("goes on as the user who has signed in by another window of the browser", async () => {
  let who = me;
  const keysOf = () => (who === me ? ok(page([apiKey({ name: "of-ada" })])) : never);
  const seen = mockApi({ "GET /api/v1/auth/me": () => ok(who), "GET /api/v1/keys": keysOf });
  renderApp("/people?tab=keys");
  expect(await screen.findByText("of-ada")).toBeVisible();
  who = { ...me, user_id: "u2", name: "bob", role: "member", csrf_token: "csrf-2" };
  act(() =>
    FakeSocket.to(EVENTS_STREAM_PATH).send({ type: "event", seq: 5, data: { seq: 5, type: "auth.signed_in" } }),
  );
  expect(await screen.findByText("bob")).toBeVisible();
  await waitFor(() => expect(screen.queryByText("of-ada")).toBeNull());
  await api.POST("/api/v1/auth/logout");
  const logout = seen.find(({ path }) => path.endsWith("/logout"))!;
  expect(logout.headers.get("X-CSRF-Token")).toBe("csrf-2");
});
