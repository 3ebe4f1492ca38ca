import { describe, expect, it } from "vitest";
import { fieldDocs } from "./docs";
import type { Schema } from "./schema";

const SCHEMA: Schema = {
  properties: {
    optimizer: { default: { kind: "adamw" } },
    resources: { default: { nodes: 1 } },
  },
};

describe("the documentation of a field", () => {
  it.each([
    [["name"], {}, "field-name"],
    [["resources", "nodes"], { resources: { nodes: 2 } }, "field-resources.nodes"],
    [["optimizer", "lr"], { optimizer: { kind: "sgd", lr: 1 } }, "field-optimizer.sgd.lr"],
    [["optimizer", "lr"], { optimizer: { lr: 1 } }, "field-optimizer.adamw.lr"],
    [["environment", "variables", "PATH"], {}, "field-environment.variables"],
  ])("of %j in %j is at %s", (path, document, anchor) => {
    expect(fieldDocs(path, document, SCHEMA)).toBe(`/docs/reference/job_spec.html#${anchor}`);
  });
});
