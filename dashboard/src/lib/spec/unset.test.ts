import { expect, it } from "vitest";
import type { Schema } from "./schema";
import { withoutUnset } from "./unset";

const SCHEMA: Schema = {
  properties: {
    name: { type: "string" },
    description: { type: "string", default: "" },
    labels: { type: "object" },
    model: { anyOf: [{ $ref: "#/$defs/Model" }, { type: "null" }], default: null },
    eval_samples: { anyOf: [{ type: "integer" }, { type: "null" }], default: 100 },
    tokens: { type: "array", items: {} },
  },
  required: ["name"],
  $defs: { Model: { type: "object", properties: { dim: { type: "integer" }, preset: { default: null } } } },
};

it("leaves out what is empty and the default, at any depth", () => {
  const model = { dim: 8, preset: null };
  const document = { name: "a", description: "", labels: {}, tokens: [], model, eval_samples: 100 };
  expect(withoutUnset(SCHEMA, document)).toEqual({ name: "a", model: { dim: 8 }, eval_samples: 100 });
});

it("keeps an empty value that is not the default, what is required, and what the schema does not know", () => {
  const document = { name: "", eval_samples: null, labels: { team: "" }, other: null };
  expect(withoutUnset(SCHEMA, document)).toEqual(document);
});
