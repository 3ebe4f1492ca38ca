import { describe, expect, it } from "vitest";
import { jobSummary, me } from "@/testing/fixtures";
import { execRefusal, refusal } from "./ownership";

describe("who may destroy what of a job", () => {
  const hers = jobSummary({ created_by: "bea", created_by_id: "u2" });
  it.each([
    ["admin", "own", hers, null],
    ["member", "own", jobSummary({ created_by_id: "u1" }), null],
    ["member", "all", hers, null],
    ["member", "own", hers, "This is bea's job: only bea or an admin may do this."],
    ["viewer", "all", hers, "Your role is viewer: only members and admins may do this."],
  ] as const)("%s, where members may destroy %s", (role, members_may, job, expected) => {
    expect(refusal({ ...me, role, members_may }, job)).toBe(expected);
  });
});

describe("who may run commands beside the ranks of a job", () => {
  const [hers, own] = [jobSummary({ created_by: "bea", created_by_id: "u2" }), jobSummary({ created_by_id: "u1" })];
  it.each([
    ["admin", "owners", hers, null],
    ["admin", "admins", hers, null],
    ["admin", "nobody", own, "Commands beside ranks are switched off on this coordinator."],
    ["member", "owners", own, null],
    ["member", "owners", hers, "This is bea's job: only bea or an admin may do this."],
    ["member", "admins", own, "Here only admins may run commands beside ranks."],
    ["viewer", "owners", own, "Your role is viewer: only members and admins may do this."],
  ] as const)("%s, where the setting is %s", (role, exec_by, job, expected) => {
    expect(execRefusal({ ...me, role, exec_by, members_may: "all" }, job)).toBe(expected);
  });
});
