/** Everything that is wrong with a document, by place: from its syntax, the schema, and the coordinator. Pure. */
import type { ApiError } from "@/lib/errors";
import { isRecord, pathOf, pointerOf, type Issue } from "./schema";

/**
 * The coordinator's field errors; a pointer may name a union's variant (`/model/gpt/dim`), which is no place in the document. What is wrong
 * between several fields stands at the first one that the message names (`communication.ratio=0.05 is for ...`), where the document has it.
 */
export function serverIssues(error: Pick<ApiError, "errors"> | null, document: unknown): Issue[] {
  if (!error) return [];
  return error.errors.map(({ pointer, message, hint }) => ({
    pointer: pointerOf(namedIn(message, withoutVariants(pathOf(pointer), document), document)),
    message: hint ? `${message}; ${hint}` : message,
  }));
}

function namedIn(message: string, path: string[], document: unknown): string[] {
  const named = /^[a-z]\w*(\.\w+)*/.exec(message)?.[0].split(".") ?? [];
  const whole = [...path, ...named];
  const found = whole.reduce<unknown>(
    (inner, part) => (isRecord(inner) && Object.hasOwn(inner, part) ? inner[part] : undefined),
    document,
  );
  if (found !== undefined) return whole;
  return path.length === 0 && named.length === 1 ? inItsSection(named[0]!, document) : path;
}

/** The path of a field that is named without its section; that of the whole document where none or several have it. */
function inItsSection(name: string, document: unknown): string[] {
  const sections = Object.entries(isRecord(document) ? document : {});
  const [one, ...others] = sections.filter(([, section]) => isRecord(section) && Object.hasOwn(section, name));
  return one && others.length === 0 ? [one[0], name] : [];
}

function withoutVariants(path: string[], document: unknown): string[] {
  const kept: string[] = [];
  let value = document;
  for (const part of path) {
    const isTag = isRecord(value) && value.kind === part && !(part in value);
    if (isTag) continue;
    kept.push(part);
    value = isRecord(value) ? value[part] : undefined;
  }
  return kept;
}

export function issueAt(issues: readonly Issue[], pointer: string): string | undefined {
  return issues.find((one) => one.pointer === pointer)?.message;
}

/** What is wrong with the value of one field: with the whole of it, or with an item of a list or an entry of a map, which is then named. */
export function issueOf(issues: readonly Issue[], pointer: string): string | undefined {
  const own = issueAt(issues, pointer);
  const inner = issuesWithin(issues, pointer)[0];
  if (own !== undefined || inner === undefined) return own;
  const place = pathOf(inner.pointer.slice(pointer.length)).map((part) =>
    isIndex(part) ? `Item ${Number(part) + 1}` : part,
  );
  return `${place.join(", ")}: ${inner.message}`;
}

function isIndex(part: string): boolean {
  return /^\d+$/.test(part);
}

/** Those of a section, for its heading: the part itself and everything in it. */
export function issuesWithin(issues: readonly Issue[], pointer: string): Issue[] {
  return issues.filter((one) => one.pointer === pointer || one.pointer.startsWith(`${pointer}/`));
}
