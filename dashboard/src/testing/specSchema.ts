import document from "../../openapi.json";
import type { Schema } from "@/features/submit/schema";

/** The published schema of a job spec, out of the OpenAPI document: the real one, not a copy. */
function fromOpenApi(): Schema {
  const text = JSON.stringify(document.components.schemas).replaceAll("#/components/schemas/", "#/$defs/");
  const all = JSON.parse(text) as Record<string, Schema>;
  return { ...(all["JobSpec"] ?? all["JobSpec-Input"]!), $defs: all };
}

export const specSchema = fromOpenApi();
