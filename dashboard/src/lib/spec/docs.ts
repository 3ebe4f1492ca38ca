/** Where the documentation's page of the job spec describes a part or a field. Pure. */
import { isRecord, resolve, type Path, type Schema } from "./schema";

const PAGE = "/docs/reference/job_spec.html";

/** The part with this heading. */
export function sectionDocs(anchor: string): string {
  return `${PAGE}#${anchor}`;
}

/** The row of a field: `resources.nodes`; of a part of several kinds `optimizer.adamw.lr`. Names of a map lead to the map. */
export function fieldDocs(path: Path, document: unknown, schema: Schema): string {
  const names = path.filter((part) => typeof part === "string").slice(0, 2);
  const section = String(names[0]);
  const given = isRecord(document) ? document[section] : undefined;
  const of = schema.properties?.[section];
  const part = isRecord(given) && given.kind !== undefined ? given : of && resolve(schema, of).default;
  const kind = names.length > 1 && isRecord(part) && typeof part.kind === "string" ? [part.kind] : [];
  return `${PAGE}#field-${[names[0], ...kind, ...names.slice(1)].join(".")}`;
}
