import document from "../../openapi.json";
import type { Schema } from "@/lib/spec/schema";

/** A published schema, out of the OpenAPI document: the real one, not a copy. */
function fromOpenApi(name: string): Schema {
  const text = JSON.stringify(document.components.schemas).replaceAll("#/components/schemas/", "#/$defs/");
  const all = JSON.parse(text) as Record<string, Schema>;
  return { ...(all[name] ?? all[`${name}-Input`]!), $defs: all };
}

export const specSchema = fromOpenApi("JobSpec");
export const experimentSchema = fromOpenApi("ExperimentSpec");
