/** Lists as a field of a form shows them: between commas, as a command line, or with one item on each line. Pure. */
import { numberOf } from "../numbers";
import { lineOf, wordsOf } from "../words";
import type { Resolved } from "./schema";

export interface ListField {
  /** Undefined where nothing is left. */
  read(text: string): unknown;
  write(value: unknown): string;
  multiline?: boolean;
  /** How the list is typed, where it is not between commas. */
  hint?: string;
}

/** How the field at `pointer` shows its list; null where it has none. */
export function listField(pointer: string, schema: Resolved): ListField | null {
  const own = OF_ITS_OWN[pointer];
  if (own || schema.type !== "array") return own ?? null;
  return betweenCommas(schema.items?.type === "string");
}

/** What is no list yet stays the text, so that it is refused. */
const COMMAND_LINE: ListField = {
  multiline: true,
  hint: "As on a command line.",
  read: (text) => {
    const words = wordsOf(text);
    return words === null ? text : unlessEmpty(words);
  },
  write: (value) => (Array.isArray(value) ? lineOf(value) : String(value)),
};

const LINES: ListField = {
  multiline: true,
  hint: "One on each line.",
  read: (text) => unlessEmpty(text.split("\n").flatMap((line) => line.trim() || [])),
  write: (value) => (Array.isArray(value) ? value.join("\n") : String(value)),
};

/** Lists whose items have commas of their own. */
const OF_ITS_OWN: Record<string, ListField> = {
  "/script/args": COMMAND_LINE,
  "/script/command": COMMAND_LINE,
  "/environment/requirements": LINES,
};

const ITEM = /"(?:[^"\\]|\\.)*"(?=\s*(?:,|$))|[^\s,][^,\n]*/g;

/** A text that would be read as something else stands in quotes, as in JSON: one with commas, blanks at its ends or quotes around it. */
function betweenCommas(areTexts: boolean): ListField {
  const read = (text: string) => unlessEmpty((text.match(ITEM) ?? []).map((item) => itemIn(item.trim(), areTexts)));
  const isPlain = (item: unknown) => JSON.stringify(read(String(item))) === JSON.stringify([item]);
  const written = (item: unknown) => (isPlain(item) ? String(item) : JSON.stringify(item));
  return { read, write: (value) => (Array.isArray(value) ? value.map(written).join(", ") : String(value)) };
}

/** Where the schema wants texts, digits stay a text. */
function itemIn(text: string, isText: boolean): unknown {
  if (!text.startsWith('"')) return isText ? text : numberOf(text);
  try {
    return JSON.parse(text);
  } catch {
    return text; // quotes of its own
  }
}

function unlessEmpty<T>(items: readonly T[]): readonly T[] | undefined {
  return items.length ? items : undefined;
}
