/** The job document: one YAML text, which the form edits in place so that comments and order stay. Pure. */
import {
  isCollection,
  isMap,
  isNode,
  isPair,
  isScalar,
  visit,
  type Document,
  type Node,
  type Pair,
  type YAMLMap,
} from "yaml";
import { problemsIn, type TextProblem } from "./problems";
import { pathOf, type Path } from "./schema";
import { readYaml } from "./yaml";

export interface Parsed {
  /** undefined where the text is not YAML. */
  value: unknown;
  problems: TextProblem[];
}

export function parse(text: string): Parsed {
  const document = readYaml(text);
  keepSpelling(document.contents, AS_TYPED);
  const problems = problemsIn(text, document);
  return { value: problems.length ? undefined : (document.toJS() ?? {}), problems };
}

/** Fields whose values are texts that a program reads: `0.10`, `1e4` and `true` stay as they are typed, as on a command line. `*` is any step. */
const AS_TYPED: readonly Path[] = [
  ["script", "args", "*"],
  ["script", "command", "*"],
  ["environment", "variables", "*"],
  ["job", "script", "args", "*"],
  ["job", "script", "command", "*"],
  ["job", "environment", "variables", "*"],
  ["grid", "script.args", "*", "*"],
  ["grid", "script.command", "*", "*"],
  ["zip", "*", "script.args", "*", "*"],
  ["zip", "*", "script.command", "*", "*"],
];

/** Makes texts of the values that stand at `paths` below a node. */
function keepSpelling(node: unknown, paths: readonly Path[]): void {
  if (isScalar(node) && paths.some(({ length }) => length === 0)) {
    if (node.value !== null && node.source !== undefined) node.value = node.source;
  }
  for (const item of isCollection(node) ? node.items : []) {
    const step = isPair(item) ? keyOf(item) : "*";
    const below = paths.filter(([first]) => first === "*" || first === step).map((path) => path.slice(1));
    if (below.length) keepSpelling(isPair(item) ? item.value : item, below);
  }
}

/** The text with one field set; undefined removes it, and the parents that it leaves empty. */
export function setField(text: string, path: Path, value: unknown): string {
  const document = readYaml(text);
  if (problemsIn(text, document).length) return text;
  writeOut(document);
  fieldsOf(document);
  makeParents(document, path);
  if (value === undefined) prune(document, [...path]);
  else document.setIn(path, typeof value === "object" && value !== null ? flow(document, value) : value);
  return written(document);
}

function written(document: Document): string {
  return document.toString({ lineWidth: 120 });
}

/** Aliases are written out: an edit through one would change two places, and one that takes its anchor away leaves no document. */
function writeOut(document: Document): void {
  visit(document, { Alias: (_, alias) => alias.resolve(document)!.clone() as Node });
  visit(document, { Value: (_, node) => void delete node.anchor });
}

/** Each parent becomes a map that takes fields, with the comments of the value that it had. */
function makeParents(document: Document, path: Path): void {
  for (let end = 1; end < path.length; end++) {
    const node = document.getIn(path.slice(0, end), true);
    if (!isNode(node) || isMap(node)) continue;
    const map = document.createNode({});
    map.comment = node.comment;
    map.commentBefore = node.commentBefore;
    document.setIn(path.slice(0, end), map);
  }
}

/** The map that a document is; what is none is replaced by an empty one. */
function fieldsOf(document: Document): YAMLMap {
  if (!isMap(document.contents)) document.contents = document.createNode({});
  return document.contents as YAMLMap;
}

function prune(document: Document, path: (string | number)[]): void {
  if (document.hasIn(path)) document.deleteIn(path); // which throws where a parent is missing
  const parent = path.slice(0, -1);
  const node = parent.length ? document.getIn(parent) : undefined;
  if (isMap(node) && node.items.length === 0) prune(document, parent);
}

/** A part of a document, with its comments. */
export interface Part {
  path: Path;
  pair: Pair;
}

/** The text without what stands at `paths`, and what stood there; an empty part is not kept. */
export function takeOut(text: string, paths: readonly Path[]): { text: string; parts: readonly Part[] } {
  const document = readYaml(text);
  const parts = paths.flatMap((path) => {
    const pair = pairAt(mapAt(document, path.slice(0, -1)), path.at(-1)!);
    if (pair) prune(document, [...path]);
    return pair && !isEmpty(pair) ? [{ path, pair }] : [];
  });
  return { text: written(document), parts };
}

/** The text with `parts`, and with the fields of `first` that it then still lacks; fields that it has stay. `order` is that of the fields. */
export function putIn(
  text: string,
  parts: readonly Part[],
  first: Record<string, unknown>,
  order: readonly string[],
): string {
  const document = readYaml(text);
  writeOut(document);
  const top = fieldsOf(document);
  for (const { path, pair } of parts.toSorted((a, b) => a.path.length - b.path.length)) {
    if (path.length > 1 && !mapAt(document, path.slice(0, -1))) insert(top, document.createPair(path[0], {}), order);
    insert(mapAt(document, path.slice(0, -1))!, pair, path.length > 1 ? [] : order);
  }
  for (const [name, value] of Object.entries(first)) insert(top, document.createPair(name, value), order);
  return written(document);
}

/** Before the first field that comes later in `order`; in the place of an empty one. */
function insert(map: YAMLMap, pair: Pair, order: readonly string[]): void {
  const old = pairAt(map, keyOf(pair));
  if (old && !isEmpty(old)) return;
  const later = order.slice(order.indexOf(keyOf(pair)) + 1);
  const place = old ? map.items.indexOf(old) : map.items.findIndex((item) => later.includes(keyOf(item)));
  map.items.splice(place < 0 ? map.items.length : place, old ? 1 : 0, pair);
}

function mapAt(document: Document, path: Path): YAMLMap | undefined {
  const node = path.length ? document.getIn(path) : document.contents;
  return isMap(node) ? node : undefined;
}

function pairAt(map: YAMLMap | undefined, key: string | number): Pair | undefined {
  return map?.items.find((item) => keyOf(item) === key);
}

function keyOf({ key }: Pair): string {
  return String(isScalar(key) ? key.value : key);
}

function isEmpty({ value }: Pair): boolean {
  return value === null || (isScalar(value) && value.value === null);
}

/** Lists of numbers on one line, as people write them. */
function flow(document: Document, value: object) {
  return document.createNode(value, { flow: Array.isArray(value) });
}

/** Where in the text a pointer's value stands; its nearest existing parent where it is missing. */
export function rangeOf(text: string, pointer: string): { from: number; to: number } {
  const document = readYaml(text);
  for (let path = pathOf(pointer); path.length > 0; path = path.slice(0, -1)) {
    const node = document.getIn(path, true);
    if (isNode(node) && node.range) return { from: node.range[0], to: Math.max(node.range[1], node.range[0] + 1) };
  }
  return { from: 0, to: Math.min(text.length, Math.max(1, text.indexOf("\n"))) };
}
