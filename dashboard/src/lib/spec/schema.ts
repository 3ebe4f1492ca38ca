/**
 * Reading the job spec's JSON Schema: what the form shows, what the editor completes, what is wrong.
 *
 * Covers the part of JSON Schema that pydantic writes. It interprets rather than compiles, so that a content security
 * policy without `unsafe-eval` holds, and it follows `discriminator`, so that a wrong field of one variant is one error.
 */
import { numberAdvice, oversized } from "../numbers";
import { wordsOf } from "../words";
import { mapProblem } from "./maps";
import { nearest } from "./nearest";

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  discriminator?: { propertyName: string; mapping: Record<string, string> };
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  propertyNames?: Schema;
  additionalProperties?: boolean | Schema;
  required?: string[];
  items?: Schema;
  prefixItems?: Schema[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  /** Another name that the field may be written with. */
  "x-alias"?: string;
}

export interface Resolved extends Schema {
  nullable: boolean;
  /** Words that stand for a whole object, as `auto` for a `communication` section. */
  shorthands?: readonly unknown[];
}

export interface Issue {
  /** JSON pointer into the spec. */
  pointer: string;
  message: string;
}

export type Path = readonly (string | number)[];

export function pointerOf(path: Path): string {
  return path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

export function pathOf(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Follows references and takes `null` out of a union; the outer title, description and default win. */
export function resolve(root: Schema, schema: Schema): Resolved {
  const { $ref, anyOf, ...own } = schema;
  if ($ref) return { ...resolve(root, root.$defs?.[$ref.replace("#/$defs/", "")] ?? {}), ...own };
  if (!anyOf) return { ...own, nullable: own.type === "null" };
  const rest = anyOf.filter((option) => option.type !== "null");
  const nullable = rest.length < anyOf.length;
  if (rest.length === 1) return { ...resolve(root, rest[0]!), ...own, nullable };
  const [object, ...others] = rest.filter((option) => option.const === undefined);
  if (!(object?.$ref || object?.properties) || others.length > 0) return { ...own, nullable };
  return { ...resolve(root, object), ...own, nullable, shorthands: rest.flatMap((option) => option.const ?? []) };
}

/** The variants of a tagged union by the value of its tag; null for anything else. */
export function variantsOf(root: Schema, schema: Resolved): Record<string, Resolved> | null {
  if (!schema.discriminator) return null;
  const entries = Object.entries(schema.discriminator.mapping).map(
    ([tag, $ref]) => [tag, resolve(root, { $ref })] as const,
  );
  return Object.fromEntries(entries);
}

/** The schema that applies to `value`: of a tagged union, the variant it names. */
export function concrete(root: Schema, schema: Schema, value: unknown): Resolved {
  const resolved = resolve(root, schema);
  const variants = variantsOf(root, resolved);
  const tag = isRecord(value) ? String(value[resolved.discriminator?.propertyName ?? ""]) : "";
  return variants?.[tag]
    ? { ...variants[tag], nullable: resolved.nullable, discriminator: resolved.discriminator }
    : resolved;
}

/** The schema at a path of the document, or null where the schema knows no such place. */
export function schemaAt(root: Schema, path: Path, document: unknown): Resolved | null {
  let schema = concrete(root, root, document);
  let value = document;
  for (const part of path) {
    const next = schema.properties?.[part] ?? schema.prefixItems?.[Number(part)] ?? schema.items;
    if (!next) return null;
    value = isRecord(value) || Array.isArray(value) ? (value as Record<string, unknown>)[part] : undefined;
    schema = concrete(root, next, value);
  }
  return schema;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A form's field takes a list as a line, and YAML in brackets: both with commas. */
const HOW_TO_LIST = "; separate them by commas";

export function validate(root: Schema, document: unknown): Issue[] {
  return check(root, root, document, []);
}

function check(root: Schema, schema: Schema, value: unknown, path: Path): Issue[] {
  const here = concrete(root, schema, value);
  if (value === null || value === undefined)
    return here.nullable ? [] : [issue(path, `Must be ${KINDS[here.type ?? ""] ?? "a value"}; it is empty`)];
  if (here.shorthands?.includes(value)) return [];
  const variants = variantsOf(root, here);
  if (variants && !here.properties) return [unknownVariant(here, Object.keys(variants), value, path)];
  const wrong = typeProblem(here, value) ?? valueProblem(here, value);
  if (wrong) return [issue(path, wrong)];
  if (isRecord(value)) return checkObject(root, here, value, path);
  if (Array.isArray(value)) return checkArray(root, here, value, path);
  return [];
}

function checkObject(root: Schema, schema: Resolved, value: Record<string, unknown>, path: Path): Issue[] {
  const missing = (schema.required ?? [])
    .filter((name) => !(name in value))
    .map((name) => issue([...path, name], "Required: enter a value"));
  const inside = Object.entries(value).flatMap(([name, child]) => {
    const known =
      schema.properties?.[name] ?? byAlias(schema.properties, name) ?? matching(schema.patternProperties, name);
    if (known) return check(root, known, child, [...path, name]);
    if (schema.patternProperties)
      return [
        issue(
          [...path, name],
          `Invalid name ${JSON.stringify(name)}: ${schema.propertyNames?.description ?? Object.keys(schema.patternProperties).join(" or ")}`,
        ),
      ];
    return schema.additionalProperties === false ? [issue([...path, name], unknownField(name, path, schema))] : [];
  });
  return [...missing, ...inside];
}

function checkArray(root: Schema, schema: Resolved, value: unknown[], path: Path): Issue[] {
  const wanted = schema.prefixItems?.length;
  if (wanted !== undefined && value.length !== wanted)
    return [issue(path, `Must have ${wanted} items, not ${value.length}${value.length < wanted ? HOW_TO_LIST : ""}`)];
  return value.flatMap((child, index) => {
    const item = schema.prefixItems?.[index] ?? schema.items;
    return item ? check(root, item, child, [...path, index]) : [];
  });
}

function issue(path: Path, message: string): Issue {
  return { pointer: pointerOf(path), message };
}

function byAlias(properties: Record<string, Schema> | undefined, name: string): Schema | undefined {
  return Object.values(properties ?? {}).find((property) => property["x-alias"] === name);
}

function matching(patterns: Record<string, Schema> | undefined, name: string): Schema | undefined {
  return Object.entries(patterns ?? {}).find(([pattern]) => new RegExp(pattern).test(name))?.[1];
}

const DOCUMENTS: Record<string, string> = { ExperimentSpec: "an experiment", PoolSpec: "a pool" };

/** As the coordinator says it (`training/spec/refusals.py`). */
function unknownField(name: string, path: Path, schema: Schema): string {
  const known = Object.keys(schema.properties ?? {});
  const kind = schema.properties?.kind?.const;
  const document = DOCUMENTS[schema.title ?? ""] ?? "a job spec";
  const part = path.length ? path.join(".") + (kind === undefined ? "" : ` (kind ${String(kind)})`) : document;
  return `\`${name}\` is not a field of ${part}${offer(nearest(name, known)) || "."} It takes: ${known.join(", ")}`;
}

function unknownVariant(schema: Resolved, variants: string[], value: unknown, path: Path): Issue {
  const tag = schema.discriminator!.propertyName;
  const given = isRecord(value) ? value[tag] : undefined;
  return issue(
    [...path, tag],
    `choose one of ${variants.join(", ")}${typeof given === "string" ? offer(nearest(given, variants)) : ""}`,
  );
}

function offer(name: string | undefined): string {
  return name === undefined ? "" : `; did you mean \`${name}\`?`;
}

const FITS: Record<string, (value: unknown) => boolean> = {
  object: isRecord,
  array: Array.isArray,
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
  integer: (value) => Number.isInteger(value),
  number: (value) => typeof value === "number",
};

const KINDS: Record<string, string> = {
  object: "a mapping of fields",
  array: "a list, such as [a, b]",
  string: "a text",
  boolean: "true or false",
  integer: "a whole number",
  number: "a number",
};

function typeProblem(schema: Schema, value: unknown): string | null {
  if (!schema.type || (FITS[schema.type]?.(value) ?? true)) return null;
  const isMap = schema.type === "object" && !schema.properties;
  const unreadable = isMap && typeof value === "string" ? mapProblem(value) : null;
  if (unreadable) return unreadable;
  const isNumeric = schema.type === "integer" || schema.type === "number";
  const number = isNumeric && typeof value === "string" && oversized(value);
  if (typeof number === "number") return tooLarge(schema, number, String(value).trim());
  const advice = isNumeric && typeof value === "string" ? numberAdvice(value) : "";
  const isOpen = schema.type === "array" && typeof value === "string" && wordsOf(value) === null;
  return `Must be ${KINDS[schema.type] ?? "a value"}, not ${JSON.stringify(value)}${isOpen ? "; close its quote" : advice}`;
}

/** Of a number that no number holds: the limit of its field, or else that of numbers. */
function tooLarge({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema, number: number, text: string) {
  const limit = number < 0 ? (minimum ?? exclusiveMinimum) : (maximum ?? exclusiveMaximum);
  const isBeyond = limit !== undefined && (number < 0 ? number < limit : number > limit);
  const most = isBeyond ? limit : Math.sign(number) * Number.MAX_SAFE_INTEGER;
  return `Must be ${number < 0 ? "at least" : "at most"} ${most}, not ${text}`;
}

function valueProblem(schema: Schema, value: unknown): string | null {
  const choices = schema.const !== undefined ? [schema.const] : schema.enum;
  if (choices && !choices.includes(value)) return `${JSON.stringify(value)} is not one of ${choices.join(", ")}`;
  if (typeof value === "number") return numberProblem(schema, value);
  if (typeof value === "string") return stringProblem(schema, value);
  return null;
}

function numberProblem({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema, value: number): string | null {
  if (minimum !== undefined && value < minimum) return `Must be at least ${minimum}, not ${value}`;
  if (maximum !== undefined && value > maximum) return `Must be at most ${maximum}, not ${value}`;
  if (exclusiveMinimum !== undefined && value <= exclusiveMinimum)
    return `Must be greater than ${exclusiveMinimum}, not ${value}`;
  if (exclusiveMaximum !== undefined && value >= exclusiveMaximum)
    return `Must be less than ${exclusiveMaximum}, not ${value}`;
  return null;
}

function stringProblem({ minLength, maxLength, pattern, description }: Schema, value: string): string | null {
  if (minLength !== undefined && value.length < minLength)
    return minLength === 1
      ? "Required: enter a value"
      : `Must have at least ${minLength} characters, not ${value.length}`;
  if (maxLength !== undefined && value.length > maxLength)
    return `Must have at most ${maxLength} characters, not ${value.length}`;
  if (pattern && !new RegExp(pattern).test(value))
    return `Invalid value ${JSON.stringify(value)}: ${description ?? pattern}`;
  return null;
}
