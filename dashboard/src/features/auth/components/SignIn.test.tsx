import { act, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { keys } from "@/lib/keys";
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
    expect(screen.queryByText(/session has ended/)).not.toBeInTheDocument();
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
      "POST /api/v1/auth/login": () => problem(401, "invalid_login_link", "this link has expired or was already used"),
    });
    const { router } = renderApp("/login?token=old");
    expect(await screen.findByRole("alert")).toHaveTextContent(
      /^You are not signed in. This link has expired or was already used.$/,
    );
    await waitFor(() => expect(router.state.location.search).not.toHaveProperty("token"));
  });

  it("takes an API key, and goes on to where it was asked for", async () => {
    const seen = mockApi({
      "GET /api/v1/auth/me": signedOut,
      "POST /api/v1/auth/login": ({ body }) =>
        (body as { token: string }).token === "pk_right"
          ? ok(me)
          : problem(401, "invalid_credential", "this API key is unknown, expired or revoked"),
    });
    const { router } = renderApp("/login?next=%2Fcluster");
    const field = await screen.findByLabelText("Or use an API key");
    expect(field).toHaveAttribute("type", "password");
    await userEvent.type(field, "pk_wrong{Enter}");
    expect(await screen.findByRole("alert")).toHaveTextContent("This API key is unknown, expired or revoked.");
    await userEvent.clear(field);
    await userEvent.type(field, " pk_right{Enter}");
    await waitFor(() => expect(router.state.location.pathname).toBe("/cluster"));
    expect(seen.filter(({ path }) => path.endsWith("/login")).at(-1)!.body).toEqual({ token: "pk_right" });
  });

  it("offers the provider, and comes back to the page that was asked for", async () => {
    mockApi({ "GET /api/v1/auth/me": signedOut, "GET /api/v1/auth/ways": () => ok({ oidc: "Example" }) });
    renderApp("/login?next=%2Fcluster%3Fadd%3Dtrue");
    const link = await screen.findByRole("link", { name: "Sign in with Example" });
    expect(link).toHaveAttribute("href", "/api/v1/auth/oidc/start?next=%2Fcluster%3Fadd%3Dtrue");
  });

  it.each([
    ["oidc_no_role", "Your account has no role here. Ask an admin of Paceline for one."],
    ["Call +1 555 0100", "The sign-in service did not confirm who you are. Try again."],
  ])("has words of its own for the refusal %s of the provider", async (code, words) => {
    mockApi({ "GET /api/v1/auth/me": signedOut });
    renderApp(`/login?refused=${encodeURIComponent(code)}`);
    expect(await screen.findByRole("alert")).toHaveTextContent(`You are not signed in. ${words}`);
  });

  it("is asked for when the session ends under an open page that requests nothing by itself", async () => {
    let expired = false;
    mockApi({ "GET /api/v1/auth/me": () => (expired ? signedOut() : ok(me)) });
    const { router } = renderApp("/jobs/job1?tab=spec");
    await screen.findByRole("heading", { name: "gpt-stdlib" });
    expired = true;
    act(() => FakeSocket.to("/events/stream").drop());
    expect(await screen.findByText("Your session has ended. Sign in again.")).toBeVisible();
    expect(router.state.location.search).toMatchObject({ next: "/jobs/job1?tab=spec" });
  });

  it("does not call a session ended that was signed out of by hand", async () => {
    let left = false;
    const seen = mockApi({
      "GET /api/v1/auth/me": () => (left ? signedOut() : ok(me)),
      "POST /api/v1/auth/logout": () => {
        left = true;
        return ok(null, 204);
      },
    });
    const { client, router } = renderApp("/jobs/job1?tab=spec");
    await userEvent.click(await screen.findByRole("button", { name: "Sign out" }));
    expect(await screen.findByText("paceline login-link")).toBeVisible();
    await waitFor(() => expect(client.getQueryData(keys.me)).toBeNull());
    expect(seen.some(({ path }) => path.endsWith("/logout"))).toBe(true);
    expect(router.state.location.search).toEqual({ next: "/jobs/job1?tab=spec" });
    expect(screen.queryByText(/session has ended/)).not.toBeInTheDocument();
  });

  it("never returns to another site", async () => {
    mockApi({ "GET /api/v1/auth/me": signedOut });
    const { router } = renderApp("/login?next=%2F%2Fevil.example");
    await screen.findByText("paceline login-link");
    expect(router.state.location.search).not.toHaveProperty("next");
  });
});
