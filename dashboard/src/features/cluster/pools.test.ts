import { describe, expect, it } from "vitest";
import { parse } from "@/lib/spec/document";
import { pool } from "@/testing/fixtures";
import { autoscaleInWords, budgetShare, documentOf, POOL_TEMPLATES } from "./pools";

const autoscale = {
  device: "cuda" as const,
  idle_seconds: 300,
  cost: 0.3,
  containers: true,
  discards_checkpoints: true,
  budget_node_hours: 500,
};

describe("a pool as a document", () => {
  it("has what is set, and nothing else", () => {
    const hosts = [{ host: "gpu1", user: "ada", port: null, host_key: null, slots: null, address: null }];
    const provider = { type: "ssh", hosts, pip_options: [], user: null } as never;
    expect(parse(documentOf(pool({ provider, slots: 8, autoscale, labels: {} }))).value).toEqual({
      name: "lab",
      provider: { type: "ssh", hosts: [{ host: "gpu1", user: "ada" }] },
      slots: 8,
      min_nodes: 0,
      max_nodes: 4,
      autoscale,
      server: "http://127.0.0.1:8000",
    });
  });

  it.each(Object.entries(POOL_TEMPLATES))("begins as one of %s", (type, { text }) => {
    expect(parse(text).value).toMatchObject({ provider: { type } });
  });
});

describe("a pool in words", () => {
  it("says when a node leaves and what it costs", () => {
    expect(autoscaleInWords(pool({ autoscale }))).toBe("cuda slots, an idle node leaves after 5 min, cost 0.3 an hour");
    expect(autoscaleInWords(pool())).toBeNull();
  });

  it("knows which share of its budget is used", () => {
    expect(budgetShare(pool({ node_hours: 50, autoscale }))).toBe(0.1);
    expect(budgetShare(pool({ node_hours: 600, autoscale }))).toBe(1);
    expect(budgetShare(pool({ node_hours: 0, autoscale: { ...autoscale, budget_node_hours: 0 } }))).toBe(1);
    expect(budgetShare(pool({ node_hours: 50 }))).toBeNull();
  });
});
