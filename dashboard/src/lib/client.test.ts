import { describe, expect, it } from "vitest";
import { mockApi, ok, problem, unreachable } from "@/testing/mockApi";
import { job } from "@/testing/fixtures";
import { api, newIdempotencyKey, setCsrfToken, unwrap } from "./client";
import { ApiError, UnreachableError } from "./errors";
import { worthRetrying } from "./query";

const pause = () =>
  unwrap(
    api.PUT("/api/v1/training/jobs/{job_id}/pause", {
      params: { path: { job_id: "job1" }, header: { "If-Match": '"7"' } },
    }),
  );

describe("the client", () => {
  it("sends the CSRF token with unsafe methods only", async () => {
    const seen = mockApi({ "PUT /api/v1/training/jobs/job1/pause": () => ok(job()) });
    setCsrfToken("csrf-1");
    await unwrap(api.GET("/api/v1/auth/me"));
    await pause();
    expect(seen.map(({ headers }) => headers.get("X-CSRF-Token"))).toEqual([null, "csrf-1"]);
    expect(seen[1]!.headers.get("If-Match")).toBe('"7"');
  });

  it("throws the coordinator's problem with its code and field errors", async () => {
    mockApi({
      "PUT /api/v1/training/jobs/job1/pause": () =>
        problem(412, "stale_revision", "the job changed", [{ pointer: "/a", code: "x", message: "m", hint: null }]),
    });
    const error = await pause().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({
      status: 412,
      code: "stale_revision",
      message: "the job changed",
      requestId: "req-1",
    });
    expect((error as ApiError).errors).toHaveLength(1);
  });

  it("says that the coordinator is unreachable when nothing answers, or only its proxy does", async () => {
    mockApi({ "PUT /api/v1/training/jobs/job1/pause": unreachable() });
    await expect(pause()).rejects.toBeInstanceOf(UnreachableError);
    mockApi({ "PUT /api/v1/training/jobs/job1/pause": () => ok("<html>", 502) });
    await expect(pause()).rejects.toBeInstanceOf(UnreachableError);
  });

  it("tries again only what may pass by itself, and at most twice", () => {
    const withStatus = (status: number) => new ApiError({ status, code: "c", detail: "d" });
    expect([0, 429, 503].map((status) => worthRetrying(0, withStatus(status)))).toEqual([true, true, true]);
    expect([401, 404, 409, 422].map((status) => worthRetrying(0, withStatus(status)))).toEqual([
      false,
      false,
      false,
      false,
    ]);
    expect(worthRetrying(2, withStatus(503))).toBe(false);
  });

  it("makes a new idempotency key each time", () => {
    expect(newIdempotencyKey()).toMatch(/^[0-9a-f]{32}$/);
    expect(newIdempotencyKey()).not.toBe(newIdempotencyKey());
  });
});
