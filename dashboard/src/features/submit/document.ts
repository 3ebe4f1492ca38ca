/** The job document: one YAML text, which the form edits in place so that comments and order stay. Pure. */
import { isCollection, isMap, isNode, isPair, isScalar, parseDocument, type Document } from "yaml";
import { pathOf, type Path } from "./schema";

export interface Parsed {
  /** undefined where the text is not YAML. */
  value: unknown;
  problems: { from: number; to: number; message: string }[];
}

export function parse(text: string): Parsed {
  const document = parseDocument(text);
  keepSpelling(document);
  const problems = document.errors.map(({ pos, message }) => ({ from: pos[0], to: pos[1], message: message.split("\n")[0]! }));
  return { value: problems.length ? undefined : (document.toJS() ?? {}), problems };
}

/** Fields whose values are texts that a program reads: `0.10`, `1e4` and `true` stay as they are typed, as on a command line. */
const AS_TYPED = [["script", "args"], ["script", "command"], ["environment", "variables"]];

function keepSpelling(document: Document): void {
  for (const path of AS_TYPED) {
    const parent = document.getIn(path, true);
    for (const item of isCollection(parent) ? parent.items : []) {
      const node = isPair(item) ? item.value : item;
      if (isScalar(node) && node.value !== null && node.source !== undefined) node.value = node.source;
    }
  }
}

/** The text with one field set; undefined removes it, and the parents that it leaves empty. */
export function setField(text: string, path: Path, value: unknown): string {
  const document = parseDocument(text);
  if (document.errors.length) return text;
  if (document.contents === null) document.contents = document.createNode({}) as unknown as typeof document.contents;
  if (value === undefined) prune(document, [...path]);
  else document.setIn(path, typeof value === "object" && value !== null ? flow(document, value) : value);
  return document.toString({ lineWidth: 120 });
}

function prune(document: Document, path: (string | number)[]): void {
  document.deleteIn(path);
  const parent = path.slice(0, -1);
  const node = parent.length ? document.getIn(parent) : undefined;
  if (isMap(node) && node.items.length === 0) prune(document, parent);
}

/** Lists of numbers on one line, as people write them. */
function flow(document: Document, value: object) {
  return document.createNode(value, { flow: Array.isArray(value) });
}

/** Where in the text a pointer's value stands; its nearest existing parent where it is missing. */
export function rangeOf(text: string, pointer: string): { from: number; to: number } {
  const document = parseDocument(text);
  for (let path = pathOf(pointer); path.length > 0; path = path.slice(0, -1)) {
    const node = document.getIn(path, true);
    if (isNode(node) && node.range) return { from: node.range[0], to: Math.max(node.range[1], node.range[0] + 1) };
  }
  return { from: 0, to: Math.min(text.length, Math.max(1, text.indexOf("\n"))) };
}
