import { act, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { FakeSocket } from "@/testing/fakeSocket";
import { jobSummary, me, page } from "@/testing/fixtures";
import { mockApi, ok, problem } from "@/testing/mockApi";
import { renderApp } from "@/testing/renderApp";

const signedOut = () => problem(401, "unauthenticated", "Sign in.");

describe("signing in", () => {
  it("tells how to get a link when there is no session, and where to return", async () => {
    mockApi({ "GET /api/v1/auth/me": signedOut });
    const { router } = renderApp("/cluster");
    expect(await screen.findByText("paceline login-link")).toBeVisible();
    expect(router.state.location.search).toMatchObject({ next: "/cluster" });
  });

  it("takes the token out of the address and uses it once", async () => {
    const seen = mockApi({
      "GET /api/v1/auth/me": signedOut,
      "POST /api/v1/auth/login": () => ok(me),
      "GET /api/v1/training/jobs": () => ok(page([jobSummary()])),
    });
    const { router } = renderApp("/login?token=secret-1");
    expect(await screen.findByRole("link", { name: "gpt-stdlib" })).toBeVisible();
    expect(router.state.location.href).toBe("/jobs");
    expect(router.history.length).toBe(1);
    const logins = seen.filter(({ path }) => path.endsWith("/login"));
    expect(logins.map(({ body }) => body)).toEqual([{ token: "secret-1" }]);
  });

  it("says why a link was refused", async () => {
    mockApi({
      "GET /api/v1/auth/me": signedOut,
      "POST /api/v1/auth/login": () => problem(401, "token_used", "This link was used before."),
    });
    const { router } = renderApp("/login?token=old");
    expect(await screen.findByRole("alert")).toHaveTextContent("This link was used before. token_used");
    await waitFor(() => expect(router.state.location.search).not.toHaveProperty("token"));
  });

  it("is asked for when the session ends under an open page that requests nothing by itself", async () => {
    let expired = false;
    mockApi({ "GET /api/v1/auth/me": () => (expired ? signedOut() : ok(me)) });
    const { router } = renderApp("/jobs/job1?tab=spec");
    await screen.findByRole("heading", { name: "gpt-stdlib" });
    expired = true;
    act(() => FakeSocket.to("/events/stream").drop());
    expect(await screen.findByText("paceline login-link")).toBeVisible();
    expect(router.state.location.search).toMatchObject({ next: "/jobs/job1?tab=spec" });
  });

  it("never returns to another site", async () => {
    mockApi({ "GET /api/v1/auth/me": signedOut });
    const { router } = renderApp("/login?next=%2F%2Fevil.example");
    await screen.findByText("paceline login-link");
    expect(router.state.location.search).not.toHaveProperty("next");
  });
});
