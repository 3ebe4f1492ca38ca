/** Where a line has what is searched for, so that it can be marked. The coordinator finds the lines, with expressions of RE2. Pure. */

/** What is searched for: a text, or a regular expression. */
export interface Search {
  q: string;
  regex: boolean;
}

export type Hit = readonly [from: number, to: number];

const MOST_HITS = 100;
/** Steps that a browser's engine may take for one line: unlike RE2, it tries every way in which repetitions can share the text. */
const MOST_STEPS = 1e8;

export function hitsIn(text: string, search: Search | undefined): Hit[] {
  const pattern = search && patternOf(search, text.length);
  if (!pattern) return [];
  const hits: Hit[] = [];
  for (const found of text.matchAll(pattern)) {
    if (found[0] === "") continue;
    hits.push([found.index, found.index + found[0].length]);
    if (hits.length === MOST_HITS) break;
  }
  return hits;
}

/** null where a browser does not read the expression, or could take long for a text of this length. */
function patternOf({ q, regex }: Search, length: number): RegExp | null {
  if (!regex) return new RegExp(q.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"), "gi");
  const repetitions = q.match(/[*+?{]/g)?.length ?? 0;
  const isNested = /\)[*+{]/.test(q);
  if (isNested || length ** (repetitions + 1) > MOST_STEPS) return null;
  try {
    return new RegExp(q, "gim");
  } catch {
    return null;
  }
}
