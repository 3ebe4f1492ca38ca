/** Extremes that stand out: what one step among thousands did must be seen as well as the line itself. Pure. */

/** Buckets on each side that an extreme is compared with; those right beside it may be part of the same spike. */
const REACH = 5;
const BESIDE = 1;

/** Indices at which a value stands more than `least` above the values on both sides. NaN stands nowhere. */
export function peaks(values: readonly number[], least: number): number[] {
  return values.flatMap((value, at) => {
    const around = Math.max(highest(values, at - REACH, at - BESIDE), highest(values, at + BESIDE + 1, at + REACH + 1));
    return value - around > least ? [at] : [];
  });
}

/** The highest of values[from] up to, and without, values[to]; -Infinity where there is none. */
function highest(values: readonly number[], from: number, to: number): number {
  let found = -Infinity;
  for (let at = Math.max(0, from); at < Math.min(values.length, to); at++)
    found = Math.max(found, orLeast(values[at]!));
  return found;
}

function orLeast(value: number): number {
  return Number.isNaN(value) ? -Infinity : value;
}
