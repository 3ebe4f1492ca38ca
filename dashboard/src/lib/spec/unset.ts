import { concrete, isRecord, type Schema } from "./schema";

/** The document without the fields that say nothing: nulls and empty texts, lists and maps that are the default anyhow. */
export function withoutUnset(root: Schema, document: unknown): unknown {
  return strip(root, root, document);
}

function strip(root: Schema, schema: Schema, value: unknown): unknown {
  if (!isRecord(value)) return value;
  const { properties, required } = concrete(root, schema, value);
  const kept = Object.entries(value).flatMap(([name, child]) => {
    const field = properties?.[name];
    if (field === undefined) return [[name, child]];
    return isUnset(field, child) && !required?.includes(name) ? [] : [[name, strip(root, field, child)]];
  });
  return Object.fromEntries(kept);
}

/** A schema has no default of a list or a map that is empty by itself. */
function isUnset({ default: usual }: Schema, value: unknown): boolean {
  const isEmpty = value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0);
  return isEmpty && (usual === undefined ? value !== null : JSON.stringify(usual) === JSON.stringify(value));
}
