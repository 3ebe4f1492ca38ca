import { describe, expect, it } from "vitest";
import { jobSummary, me } from "@/testing/fixtures";
import { refusal } from "./ownership";

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
