/** Where a logarithmic axis has its lines. Pure. */

/** More lines than this stand too close in a small chart. */
const MOST = 8;
const LEAST = 3;
/** What a decade is divided at, from many lines to few. */
const DIVISIONS = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1]];

/** As many round values between two positive ones as are told apart: parts of decades, whole ones, or every second, third, ... */
export function logSplits(low: number, high: number): number[] {
  if (!(low > 0) || !(high > low)) return [];
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.ceil((last - first) / MOST);
  const powers = Array.from({ length: last - first + 1 }, (_, at) => first + at).filter((power) => power % every === 0);
  const within = (parts: readonly number[]) =>
    powers
      .flatMap((power) => parts.map((part) => Number(`${part}e${power}`)))
      .filter((value) => value >= low && value <= high);
  const found = DIVISIONS.map(within).find((values) => values.length <= MOST) ?? within([1]);
  return found.length >= LEAST ? found : linear(low, high);
}

/** For a range within a decade, where logarithmic and linear lines are much the same. */
function linear(low: number, high: number): number[] {
  const rough = (high - low) / LEAST;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (DIVISIONS[1]!.findLast((part) => part * power <= rough) ?? 1);
  const from = Math.ceil(low / step);
  const ticks = Array.from({ length: Math.floor(high / step) - from + 1 }, (_, at) => (from + at) * step);
  return ticks.map((tick) => Number(tick.toPrecision(9)));
}
