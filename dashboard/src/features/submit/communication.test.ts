import { describe, expect, it } from "vitest";
import { validate, type Schema } from "@/lib/spec/schema";
import { changed, whyNoCommunication, whyUnused, withSection } from "./communication";

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
    ["lossy", { compression: "top_k" }, "Only with compression auto"],
    ["lossy", { compression: "auto" }, null],
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

const SPEC = { name: "a", communication: "auto" };

describe("communication: auto", () => {
  it("is shown as the section that it stands for", () => {
    expect(withSection(SPEC)).toEqual({ name: "a", communication: { algorithm: "auto", compression: "auto" } });
    const written = { communication: { ratio: 0.1 } };
    expect(withSection(written)).toBe(written);
  });

  it("becomes that section when a field of it changes", () => {
    expect(changed(SPEC, ["communication", "ratio"], 0.1)).toEqual([
      ["communication"],
      { algorithm: "auto", compression: "auto", ratio: 0.1 },
    ]);
    expect(changed(SPEC, ["communication", "compression"], undefined)).toEqual([
      ["communication"],
      { algorithm: "auto" },
    ]);
    expect(changed(SPEC, ["name"], "b")).toEqual([["name"], "b"]);
    expect(changed({ communication: {} }, ["communication", "ratio"], 0.1)).toEqual([["communication", "ratio"], 0.1]);
  });

  it("leaves every option of a compression open", () => {
    expect(whyUnused(withSection(SPEC), "ratio")).toBeNull();
    expect(whyUnused({ communication: { algorithm: "auto" } }, "ratio")).toBe("Only with compression top_k");
  });

  it("is the one word that the schema takes for the section", () => {
    const section = { type: "object", properties: { ratio: { type: "number" } }, additionalProperties: false };
    const root: Schema = {
      $defs: { Communication: { anyOf: [{ const: "auto", type: "string" }, section] } },
      properties: { communication: { $ref: "#/$defs/Communication" } },
    };
    expect(validate(root, SPEC)).toEqual([]);
    expect(validate(root, { communication: { ratio: 0.1 } })).toEqual([]);
    expect(validate(root, { communication: "automatic" })).toHaveLength(1);
    expect(validate(root, { communication: { ratios: 0.1 } })).toHaveLength(1);
  });
});
