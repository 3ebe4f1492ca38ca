/** The experiment's document: how it begins, which schema it has, and its axes as a form edits them. Pure. */
import { numberOf } from "@/lib/numbers";
import { isRecord, concrete, resolve, type Path, type Schema } from "@/lib/spec/schema";
import { toYaml } from "@/lib/spec/yaml";
import type { Job } from "@/lib/types";

/** What a trial's spec has from the experiment, never from its base job. */
const OF_THE_EXPERIMENT = ["name", "project", "labels", "description", "version"];

/** A job's spec as the base of an experiment that varies nothing yet. */
export function documentFrom(job: Job): string {
  const spec = job.spec ?? job.stored_spec ?? {};
  const base = Object.fromEntries(Object.entries(spec).filter(([name]) => !OF_THE_EXPERIMENT.includes(name)));
  const document = { name: `${job.name}-varied`.slice(0, 63), project: job.project, repeats: 1, job: base };
  return toYaml(document);
}

const AXIS: Schema = { description: "a list of values, or {first, last, count, scale}" };

/** One schema of the whole document: the base job's fields at their place, and their paths as the keys of the grid. */
export function combinedSchema(experiment: Schema, job: Schema): Schema {
  const { required = [], $defs, ...base } = job;
  const paths = jobPaths(job, undefined).map((path) => [path, AXIS] as const);
  const { grid, ...properties } = experiment.properties ?? {};
  return {
    ...experiment,
    $defs: {
      ...$defs,
      ...experiment.$defs,
      BaseJob: { ...base, required: required.filter((name) => !OF_THE_EXPERIMENT.includes(name)) },
    },
    properties: {
      ...properties,
      ...(grid ? { grid: { ...grid, properties: Object.fromEntries(paths) } } : {}),
      job: { ...properties.job, $ref: "#/$defs/BaseJob", type: undefined, additionalProperties: undefined },
    },
  };
}

const DEEPEST = 4;

/** Paths of the fields of a job that can vary; of a tagged union, those of the variant that `job` has. */
export function jobPaths(root: Schema, job: unknown): string[] {
  return pathsWithin(root, root, job, []).filter((path) => !OF_THE_EXPERIMENT.includes(path));
}

function pathsWithin(root: Schema, schema: Schema, value: unknown, path: readonly string[]): string[] {
  const here = concrete(root, schema, value);
  if (!here.properties || path.length > DEEPEST) return path.length > 0 ? [path.join(".")] : [];
  return Object.entries(here.properties).flatMap(([name, child]) =>
    pathsWithin(root, child, isRecord(value) ? value[name] : undefined, [...path, name]),
  );
}

/** The values that a field may have, where they can be counted; null where any may be typed. */
export function choicesAt(root: Schema, path: string, job: unknown): readonly unknown[] | null {
  let schema = concrete(root, root, job);
  let value = job;
  for (const part of path.split(".")) {
    const next = schema.properties?.[part];
    if (!next) return null;
    value = isRecord(value) ? value[part] : undefined;
    schema = concrete(root, resolve(root, next), value);
  }
  if (schema.discriminator && path.split(".").length === 1) return null;
  return schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
}

export interface Axis {
  path: string;
  /** A list, or a range as the spec has it. */
  values: unknown;
}

export const STRATEGY = "parallelism.strategy";

/** The grid's axes; the strategies have a field of their own. */
export function axesOf(value: unknown): Axis[] {
  const grid = isRecord(value) && isRecord(value.grid) ? value.grid : {};
  return Object.entries(grid)
    .filter(([path]) => path !== STRATEGY)
    .map(([path, values]) => ({ path, values }));
}

const RANGE = /^\s*(\S+?)\s*\.\.\s*(\S+)\s+x\s*(\d+)(\s+log)?\s*$/;

/** A list or a section among the values, which commas cannot divide. */
const NESTED = /(?:^|,)\s*[[{]/;

/** Text to values: "1, 2, 4", or "1e-4..1e-1 x 4 log" for a range; as JSON, where one is a list or a section. Undefined: nothing is left. */
export function valuesFrom(text: string): unknown {
  const range = RANGE.exec(text);
  if (range) {
    const [, first, last, count, log] = range;
    return {
      first: numberOf(first!),
      last: numberOf(last!),
      count: numberOf(count!),
      ...(log ? { scale: "log" } : {}),
    };
  }
  if (NESTED.test(text)) return nested(text);
  const items = text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean);
  return items.length > 0 ? items.map(scalar) : undefined;
}

/** The text itself where it is no JSON yet, so that the schema refuses it. */
function nested(text: string): unknown {
  try {
    return JSON.parse(`[${text}]`);
  } catch {
    return text;
  }
}

function scalar(text: string): unknown {
  if (text === "true" || text === "false") return text === "true";
  return text === "null" ? null : numberOf(text);
}

/** Values as `valuesFrom` reads them. */
export function textOf(values: unknown): string {
  if (Array.isArray(values)) {
    const spell = values.some((value) => typeof value === "object" && value !== null) ? JSON.stringify : String;
    return values.map((value) => spell(value)).join(", ");
  }
  if (!isRecord(values)) return values == null ? "" : String(values);
  const { first, last, count, scale } = values;
  return `${String(first)}..${String(last)} x ${String(count)}${scale === "log" ? " log" : ""}`;
}

/** Parts of the document that only its text edits. */
export function onlyInText(value: unknown): string[] {
  return isRecord(value) ? ["zip", "search"].filter((name) => value[name] !== undefined && value[name] !== null) : [];
}

export function at(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((inner, part) => (isRecord(inner) ? inner[String(part)] : undefined), value);
}

/** Whether two documents are of one experiment: of the same project and name. */
export function isSameExperiment(one: unknown, other: unknown): boolean {
  return ["project", "name"].every((field) => at(one, [field]) === at(other, [field]));
}
