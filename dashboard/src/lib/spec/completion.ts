/** What can stand at a place of the YAML text, from the schema. Pure. */
import { parse } from "./document";
import { isRecord, schemaAt, variantsOf, type Path, type Schema } from "./schema";

export interface Suggestion {
  label: string;
  /** What is inserted. */
  text: string;
  detail?: string;
}

interface Place {
  path: string[];
  /** Set behind `key: `: values are wanted. */
  key: string | null;
}

const KEY = /^(\s*)(?:- )?([\w.-]+):/;

/** The keys that enclose a position, read from the indentation above it: works in a half-typed document. */
export function placeAt(text: string, offset: number): Place {
  const lines = text.slice(0, offset).split("\n");
  const current = lines.pop() ?? "";
  let indent = current.length - current.trimStart().length;
  const path: string[] = [];
  for (let i = lines.length - 1; i >= 0 && indent > 0; i--) {
    const match = KEY.exec(lines[i]!);
    if (!match || match[1]!.length >= indent) continue;
    path.unshift(match[2]!);
    indent = match[1]!.length;
  }
  return { path, key: KEY.exec(current)?.[2] ?? null };
}

export function suggest(root: Schema, text: string, offset: number): Suggestion[] {
  const { path, key } = placeAt(text, offset);
  const document = parse(withoutLine(text, offset)).value;
  return key === null ? keysAt(root, path, document) : valuesAt(root, [...path, key], document);
}

/** The half-typed line would break the parse. */
function withoutLine(text: string, offset: number): string {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  const end = text.indexOf("\n", offset);
  return text.slice(0, start) + (end < 0 ? "" : text.slice(end + 1));
}

function keysAt(root: Schema, path: Path, document: unknown): Suggestion[] {
  const schema = schemaAt(root, path, document);
  if (!schema) return [];
  const tag = schema.discriminator?.propertyName;
  const names = schema.properties ?? (tag ? { [tag]: {} } : {});
  const present = path.reduce<unknown>((value, part) => (isRecord(value) ? value[part] : undefined), document);
  const open = Object.entries(names).filter(([name]) => !(isRecord(present) && name in present));
  return open.map(([name, child]) => ({
    label: name,
    text: `${name}: `,
    detail: child.description ?? defaultOf(child),
  }));
}

function defaultOf(schema: Schema): string | undefined {
  return schema.default === undefined || schema.default === null || typeof schema.default === "object"
    ? undefined
    : `default ${String(schema.default)}`;
}

function valuesAt(root: Schema, path: Path, document: unknown): Suggestion[] {
  const parent = schemaAt(root, path.slice(0, -1), document);
  const key = path.at(-1);
  if (parent && key === parent.discriminator?.propertyName) {
    const outer = schemaAt(root, path.slice(0, -1), undefined);
    return Object.keys((outer && variantsOf(root, outer)) ?? {}).map((tag) => ({ label: tag, text: tag }));
  }
  const schema = schemaAt(root, path, document);
  const choices =
    schema?.enum ?? (schema?.const !== undefined ? [schema.const] : schema?.type === "boolean" ? [true, false] : []);
  return choices.map((choice) => ({ label: String(choice), text: String(choice) }));
}
