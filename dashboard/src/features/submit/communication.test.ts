import { describe, expect, it } from "vitest";
import { whyNoCommunication, whyUnused } from "./communication";

const spec = (parallelism: object, communication: object = {}) => ({ parallelism, communication });

describe("communication", () => {
  it.each([
    [{}, null],
    [{ strategy: "single" }, /Not with strategy single/],
    [{ strategy: "auto" }, /Not with strategy auto/],
    [{ strategy: "ddp", tensor: 2 }, /Not with tensor=2/],
    [{ strategy: "fsdp" }, /Only between replicas/],
    [{ strategy: "fsdp", replicate: 2 }, null],
  ])("of %j is limited: %s", (parallelism, why) => {
    const told = whyNoCommunication(spec(parallelism));
    if (why === null) expect(told).toBeNull();
    else expect(told).toMatch(why);
  });

  it("has no replicas to speak of before a strategy is chosen, but the default's", () => {
    expect(whyNoCommunication(undefined)).toBeNull();
  });
});

describe("a field of communication", () => {
  it.each([
    ["ratio", {}, "Only with compression top_k"],
    ["ratio", { compression: "top_k" }, null],
    ["dense_steps", { compression: "bf16" }, "Only with compression top_k or power_sgd"],
    ["rank", { compression: "power_sgd" }, null],
    ["algorithm", {}, null],
    ["bucket_mb", {}, null],
  ])("%s with %j: %s", (field, communication, why) => {
    expect(whyUnused(spec({}, communication), field)).toBe(why);
  });

  it("is of DDP alone where it is about its buckets or its graph", () => {
    const sharded = spec({ strategy: "fsdp", replicate: 2 });
    expect(["bucket_mb", "static_graph"].map((field) => whyUnused(sharded, field))).toEqual([
      "Only with strategy ddp",
      "Only with strategy ddp",
    ]);
  });
});
