/** Which steps have something logged, and what of it is shown. Pure. */
import { count, measured, plural } from "@/lib/format";
import type { JobMedia, LoggedHistogram, MediaHistograms, MediaKey } from "@/lib/types";

export interface MediaRun {
  readonly id: string;
  readonly name: string;
  readonly live: boolean;
}

/** A key as every run has it that has it. */
export interface SharedKey {
  readonly key: string;
  readonly kind: MediaKey["kind"];
  readonly runs: readonly { run: MediaRun; media: MediaKey }[];
}

interface Range {
  readonly from: number;
  readonly to: number;
}

/** Ranks whose objects are shown side by side. */
export const MOST_RANKS = 4;

/** The keys of all runs, in order of their names. */
export function sharedKeys(runs: readonly MediaRun[], found: readonly (JobMedia | undefined)[]): SharedKey[] {
  const keys = new Map<string, SharedKey>();
  runs.forEach((run, index) =>
    found[index]?.keys.forEach((media) => {
      const id = keyId(media);
      const before = keys.get(id)?.runs ?? [];
      keys.set(id, { key: media.key, kind: media.kind, runs: [...before, { run, media }] });
    }),
  );
  return [...keys.values()].sort((a, b) => a.key.localeCompare(b.key) || a.kind.localeCompare(b.kind));
}

export const keyId = ({ key, kind }: Pick<MediaKey, "key" | "kind">) => `${kind}/${key}`;

/** All steps at which anything is logged, in order, of a range or of all. */
export function stepsOf(keys: readonly SharedKey[], range: Range | null): number[] {
  const all = new Set(keys.flatMap(({ runs }) => runs.flatMap(({ media }) => media.steps)));
  return [...all].filter((step) => range === null || (step >= range.from && step <= range.to)).sort((a, b) => a - b);
}

/** The last step up to the wanted one, else the first behind it. */
export function nearest(steps: readonly number[], wanted: number): number | undefined {
  return steps.findLast((step) => step <= wanted) ?? steps[0];
}

/** The ranks that are shown of a key: the chosen ones that have it, else the first few. */
export function shownRanks({ ranks }: Pick<MediaKey, "ranks">, chosen: readonly number[]): number[] {
  const wanted = ranks.filter((rank) => chosen.includes(rank));
  return (wanted.length > 0 ? wanted : ranks).slice(0, MOST_RANKS);
}

/** Histogram bins as a share of the values per unit of width, at even places from the least to the most value of all. */
export interface Ridge {
  readonly step: number;
  readonly heights: readonly number[];
}

export interface Ridges {
  readonly least: number;
  readonly most: number;
  readonly ridges: readonly Ridge[];
}

export const RIDGE_PLACES = 64;

export function ridgesOf({ items }: Pick<MediaHistograms, "items">): Ridges | null {
  const drawn = items.filter(({ histogram }) => histogram.counts.length > 0);
  if (drawn.length === 0) return null;
  const least = Math.min(...drawn.map(({ histogram }) => histogram.edges[0]!));
  const most = Math.max(...drawn.map(({ histogram }) => histogram.edges.at(-1)!));
  return {
    least,
    most,
    ridges: drawn.map(({ step, histogram }) => ({ step, heights: resampled(histogram, least, most) })),
  };
}

/** The counts of a histogram in even bins over a range that holds all of its own. A bin's count is spread evenly over its width. */
export function resampled(
  { edges, counts }: Pick<LoggedHistogram, "edges" | "counts">,
  least: number,
  most: number,
): number[] {
  const heights = new Array<number>(RIDGE_PLACES).fill(0);
  const place = (value: number) => ((value / 2 - least / 2) / (most / 2 - least / 2 || 1)) * RIDGE_PLACES;
  counts.forEach((counted, bin) => {
    const [from, to] = [place(edges[bin]!), place(edges[bin + 1]!)];
    for (let at = Math.floor(from); at < Math.max(to, from + 1e-9) && at < RIDGE_PLACES; at++) {
      const share = to > from ? (Math.min(to, at + 1) - Math.max(from, at)) / (to - from) : 1;
      heights[Math.max(0, at)]! += counted * share;
    }
  });
  return heights;
}

/** A histogram in one sentence. */
export function histogramWords({ values, nans, infs, mean, std, least, most }: LoggedHistogram): string {
  const odd = [...(nans > 0 ? [`${count(nans)} NaN`] : []), ...(infs > 0 ? [`${count(infs)} infinite`] : [])];
  const facts = `${plural(values, "value")}${odd.length > 0 ? ` (${odd.join(", ")})` : ""}`;
  if (least === null || most === null) return `${facts}, none of them finite.`;
  return `${facts} from ${measured(least)} to ${measured(most)}, mean ${wordOf(mean)}, std ${wordOf(std)}.`;
}

const wordOf = (value: number | null) => (value === null ? "not finite" : measured(value));
