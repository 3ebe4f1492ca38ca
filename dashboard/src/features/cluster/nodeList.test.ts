import { describe, expect, it } from "vitest";
import { node } from "@/testing/fixtures";
import { filtered, jobsOn, meanUtilization, statesOf, usedSlots } from "./nodeList";

const slot = (index: number, job: string | null) => ({
  index,
  job_id: job,
  job_name: job && `${job}-name`,
  rank: job && index,
});
const nodes = [
  node({
    id: "1",
    name: "gpu-01",
    labels: { zone: "north" },
    slots: [slot(0, "a"), slot(1, "a"), slot(2, "b")] as never,
  }),
  node({ id: "2", name: "gpu-02", state: "draining", taints: { dedicated: "vision" } }),
  node({ id: "3", name: "cpu-01", address: "10.0.0.7", pool: "spot" }),
];
const found = (filter: Parameters<typeof filtered>[1]) => filtered(nodes, filter).map(({ id }) => id);

describe("the list of nodes", () => {
  it("is searched by name, address, label, taint, pool and job", () => {
    expect(found({})).toEqual(["1", "2", "3"]);
    expect(found({ find: " GPU-" })).toEqual(["1", "2"]);
    expect(found({ find: "zone=north" })).toEqual(["1"]);
    expect(found({ find: "dedicated" })).toEqual(["2"]);
    expect(found({ find: "10.0.0" })).toEqual(["3"]);
    expect(found({ find: "spot" })).toEqual(["3"]);
    expect(found({ find: "b-name" })).toEqual(["1"]);
    expect(found({ find: "gpu", state: "draining" })).toEqual(["2"]);
    expect(found({ find: "nobody" })).toEqual([]);
  });

  it("counts states, slots and jobs", () => {
    expect(statesOf(nodes)).toEqual([
      { state: "ready", count: 2 },
      { state: "draining", count: 1 },
    ]);
    expect(usedSlots(nodes[0]!)).toBe(3);
    expect(jobsOn(nodes[0]!)).toEqual([
      { id: "a", name: "a-name" },
      { id: "b", name: "b-name" },
    ]);
  });

  it("tells the mean of the cards that tell theirs", () => {
    const cards = [{ utilization_percent: 50 }, { utilization_percent: null }, { utilization_percent: 100 }];
    expect(meanUtilization(node({ gpus: cards as never }))).toBe(75);
    expect(meanUtilization(nodes[0]!)).toBeNull();
  });
});
