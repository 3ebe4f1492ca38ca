/** Labels as people write them: key=value. */
import { validate, type Schema } from "@/lib/spec/schema";

const isPair = (text: string) => text.includes("=");

export function labelsOf(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    pairs.filter(isPair).map((pair) => [pair.split("=", 1)[0]!, pair.slice(pair.indexOf("=") + 1)]),
  );
}

/** Why a text is no label; null where it is one, as far as is known: without the schema only the coordinator can say more. */
export function labelProblem(text: string, schema: Schema | undefined): string | null {
  if (!isPair(text)) return `Invalid label ${JSON.stringify(text)}: write it as key=value, for example team=nlp`;
  const issues = schema ? validate(schema, { labels: labelsOf([text]) }) : [];
  return issues.find(({ pointer }) => pointer.startsWith("/labels"))?.message ?? null;
}

/** Why a label cannot stand beside others: its key has another value there already, of which one would be dropped. */
export function sameKey(text: string, others: readonly string[]): string | null {
  const key = text.split("=", 1)[0]!;
  const other = others.find((each) => each !== text && each.split("=", 1)[0] === key);
  return other === undefined ? null : `${key} is there already, as ${other}: remove that one, or keep it`;
}

export function pairsOf(labels: Record<string, string>): string[] {
  return Object.entries(labels).map(([name, value]) => `${name}=${value}`);
}

/** The merge patch that makes `after` of `before`: null removes a label. */
export function labelPatch(
  before: Record<string, string>,
  after: Record<string, string>,
): Record<string, string | null> {
  const gone = Object.keys(before).filter((name) => !(name in after));
  const given = Object.entries(after).filter(([name, value]) => before[name] !== value);
  return Object.fromEntries([...given, ...gone.map((name) => [name, null] as const)]);
}
