/** The one of `names` that may have been meant by `name`: what it begins, or what is a slip or two away from it. Pure. */
const LONGEST = 64;

export function nearest(name: string, names: readonly string[]): string | undefined {
  if (name.length > LONGEST) return undefined;
  const begun = name.length >= 3 ? names.find((each) => each.startsWith(name)) : undefined;
  if (begun !== undefined) return begun;
  const measured = names
    .map((each) => ({ each, slips: slipsBetween(name, each) }))
    .sort((a, b) => a.slips - b.slips)[0];
  return measured && measured.slips <= Math.max(1, Math.floor(name.length / 3)) ? measured.each : undefined;
}

/** Letters to insert, drop, replace or swap with their neighbour (Damerau-Levenshtein, optimal string alignment). */
function slipsBetween(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? before[j - 2]! + 1 : Infinity;
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1, swapped));
    }
    before = row;
    row = next;
  }
  return row[b.length]!;
}
