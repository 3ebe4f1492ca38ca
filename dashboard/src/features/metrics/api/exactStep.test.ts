import { describe, expect, it } from "vitest";
import { QueryClient } from "@tanstack/react-query";
import { curve, metrics } from "@/testing/fixtures";
import { mockApi, ok } from "@/testing/mockApi";
import { exactStepQuery, type UnplacedExtreme } from "./exactStep";

const PEAK: UnplacedExtreme = {
  jobId: "job1",
  name: "loss",
  rank: 0,
  which: "maximum",
  value: 9,
  first: 7000,
  last: 7999,
};

/** Answers with buckets of a tenth of the asked width, down to `finest`; the peak is at step 7,812. */
function answering(finest: number) {
  return mockApi({
    "GET /api/v1/metrics/jobs/job1": ({ url }) => {
      const [from, to] = ["first_step", "last_step"].map((name) => Number(url.searchParams.get(name)));
      const width = Math.max(finest, (to! - from! + 1) / 10);
      const steps = Array.from(
        { length: Math.ceil((to! - from! + 1) / width) },
        (_, at) => from! + (at + 1) * width - 1,
      );
      const maximum = steps.map((last) => (7812 > last - width && 7812 <= last ? 9 : 1));
      const zeros = steps.map(() => 0);
      return ok(
        metrics({
          curves: [
            curve({
              steps,
              bucket_steps: width,
              maximum,
              minimum: zeros,
              mean: zeros,
              last: zeros,
              count: zeros,
              nan_count: zeros,
            }),
          ],
        }),
      );
    },
  });
}

const found = () => new QueryClient().fetchQuery(exactStepQuery(PEAK));

describe("the exact step of an extreme", () => {
  it("is found by reading ever finer buckets", async () => {
    const seen = answering(1);
    expect(await found()).toBe(7812);
    expect(seen.map(({ url }) => url.searchParams.get("first_step"))).toEqual(["7000", "7800", "7810"]);
  });

  it("is not named where only roll-ups are left", async () => {
    const seen = answering(100);
    expect(await found()).toBeNull();
    expect(seen).toHaveLength(2);
  });

  it("is not named where the value is not there any more", async () => {
    mockApi({ "GET /api/v1/metrics/jobs/job1": () => ok(metrics({ curves: [] })) });
    expect(await found()).toBeNull();
  });
});
