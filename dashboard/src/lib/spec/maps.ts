/**
 * A map of names to values as the form shows it: one NAME=VALUE on each line. Pure.
 *
 * A text stands in quotes, as in JSON, where it would be read as something else: with several lines, blanks at its ends or quotes of its own.
 */

interface Pair {
  name: string;
  text: string;
}

/** The pairs of a text, or a sentence about the first line that is none. */
function pairsOf(text: string): Pair[] | string {
  const pairs: Pair[] = [];
  for (const line of text.split("\n").map((each) => each.trim())) {
    if (line === "") continue;
    const at = line.indexOf("=");
    const name = line.slice(0, Math.max(at, 0)).trim();
    if (at < 0) return `"${line}" has no value: write ${line}=VALUE`;
    if (name === "") return `"${line}" has no name: write NAME${line}`;
    if (pairs.some((pair) => pair.name === name)) return `"${name}" is there twice: keep one of its lines`;
    pairs.push({ name, text: line.slice(at + 1).trim() });
  }
  return pairs;
}

/** What is wrong with the text of a map, as a sentence; null where nothing is. */
export function mapProblem(text: string): string | null {
  const pairs = pairsOf(text);
  return typeof pairs === "string" ? pairs : null;
}

/** The map that a text means; the text itself where it means none, so that the schema refuses it; undefined where it is empty. */
export function mapOf(text: string, valueOf: (text: string) => unknown): Record<string, unknown> | string | undefined {
  const pairs = pairsOf(text);
  if (typeof pairs === "string") return text;
  return pairs.length
    ? Object.fromEntries(pairs.map(({ name, text: each }) => [name, read(each, valueOf)]))
    : undefined;
}

export function linesOf(value: Record<string, unknown>, valueOf: (text: string) => unknown): string {
  const isPlain = (text: string) => text === text.trim() && !text.includes("\n") && read(text, valueOf) === text;
  return Object.entries(value)
    .map(([name, entry]) => `${name}=${typeof entry === "string" && isPlain(entry) ? entry : JSON.stringify(entry)}`)
    .join("\n");
}

function read(text: string, valueOf: (text: string) => unknown): unknown {
  if (!text.startsWith('"')) return valueOf(text);
  try {
    return JSON.parse(text);
  } catch {
    return text; // quotes of its own
  }
}
