/** From values to places: what an axis needs. Pure. */

export interface Scale {
  place(value: number): number;
  ticks: readonly number[];
}

/** Round steps of 1, 2, 2.5 or 5 times a power of ten, about `wanted` of them, from the first at or below `low` to the first at or above `high`. */
export function niceTicks(low: number, high: number, wanted = 5): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * (1 - 1e-9))!;
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

/** Values from `low` to `high`, widened to round ticks, onto the pixels from `start` to `end`. */
export function linear(low: number, high: number, start: number, end: number, wanted = 5): Scale {
  const ticks = niceTicks(low, high, wanted);
  const bottom = ticks[0]!;
  const extent = ticks.at(-1)! - bottom || 1;
  return { ticks, place: (value) => start + ((value - bottom) / extent) * (end - start) };
}

/** As `linear`, but the scale ends where the values end; ticks are those inside. */
export function tight(low: number, high: number, start: number, end: number, wanted = 5): Scale {
  const extent = high - low || 1;
  return {
    ticks: niceTicks(low, high, wanted).filter((tick) => tick >= low && tick <= high),
    place: (value) => start + ((value - low) / extent) * (end - start),
  };
}

/** Positive values: each power of ten is as high as the next. Ticks are powers of ten, about five; of less than two decades 1, 2 and 5 of each. */
export function logarithmic(low: number, high: number, start: number, end: number): Scale {
  const [bottom, top] = [Math.log10(low), Math.log10(high)];
  const extent = top - bottom || 1;
  const first = Math.floor(bottom);
  const powers = Array.from({ length: Math.ceil(top) - first + 1 }, (_, index) => first + index);
  const every = Math.max(1, Math.round(extent / 5));
  const factors = extent < 2 ? [1, 2, 5] : [1];
  const inside = powers
    .filter((power) => power % every === 0)
    .flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`)))
    .filter((tick) => tick >= low && tick <= high);
  return {
    ticks:
      extent < 1 && inside.length < 3 ? niceTicks(low, high).filter((tick) => tick >= low && tick <= high) : inside,
    place: (value) => start + ((Math.log10(value) - bottom) / extent) * (end - start),
  };
}

/** Numbers of ranks: each doubling is as wide as the next. Ticks are the numbers that there are, as many as have room. */
export function doublings(values: readonly number[], start: number, end: number): Scale {
  const all = [...new Set(values)].sort((a, b) => a - b);
  const low = Math.log2(all[0] ?? 1);
  const extent = Math.log2(all.at(-1) ?? 1) - low;
  const place = (value: number) =>
    extent === 0 ? (start + end) / 2 : start + ((Math.log2(value) - low) / extent) * (end - start);
  return { place, ticks: apart(all, place, MIN_TICK_PX) };
}

const MIN_TICK_PX = 30;

function apart(values: readonly number[], place: (value: number) => number, least: number): number[] {
  const kept: number[] = [];
  for (const value of values) {
    if (kept.length === 0 || place(value) - place(kept.at(-1)!) >= least) kept.push(value);
  }
  return kept;
}

/** An SVG path through points; a null breaks the line. */
export function pathThrough(points: readonly (readonly [number, number] | null)[]): string {
  let pen = "M";
  return points
    .map((point) => {
      if (point === null) {
        pen = "M";
        return "";
      }
      const drawn = `${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
      pen = "L";
      return drawn;
    })
    .join("");
}

/** A little beyond both ends, so that no point stands on an axis. */
export function padded([low, high]: readonly [number, number], share = 0.08): [number, number] {
  const room = (high - low || Math.abs(high) || 1) * share;
  return [low - room, high + room];
}

/** The least and the greatest finite value; null where there is none. */
export function extentOf(values: readonly (number | null | undefined)[]): [number, number] | null {
  const finite = values.filter((value): value is number => value != null && Number.isFinite(value));
  return finite.length > 0 ? [Math.min(...finite), Math.max(...finite)] : null;
}
