/** Kinds of smoothing. Pure; values that are not finite pass through, and count for nothing. */

export const SMOOTHINGS = ["ema", "gaussian", "mean"] as const;
export type SmoothingKind = (typeof SMOOTHINGS)[number];

export interface Smoothing {
  readonly kind: SmoothingKind;
  /** `ema`: the weight of what came before, below 1. `gaussian`: the standard deviation in points. `mean`: so many points. */
  readonly amount: number;
}

interface KindWords {
  readonly label: string;
  readonly least: number;
  readonly most: number;
  readonly step: number;
  /** What choosing the kind begins with. */
  readonly initial: number;
}

export const SMOOTHING_KINDS: Readonly<Record<SmoothingKind, KindWords>> = {
  ema: { label: "Exponential (EMA)", least: 0.01, most: 0.99, step: 0.01, initial: 0.6 },
  gaussian: { label: "Gaussian", least: 1, most: 50, step: 1, initial: 5 },
  mean: { label: "Running mean", least: 2, most: 200, step: 1, initial: 20 },
};

/** The smoothing that a URL asks for; null where the amount does not fit the kind. */
export function smoothingOf(kind: SmoothingKind | undefined, amount: number | undefined): Smoothing | null {
  const chosen = kind ?? "ema";
  const { least, most } = SMOOTHING_KINDS[chosen];
  return amount !== undefined && amount >= least && amount <= most ? { kind: chosen, amount } : null;
}

export function smoothed(values: readonly number[], { kind, amount }: Smoothing): number[] {
  switch (kind) {
    case "ema":
      return exponential(values, amount);
    case "gaussian":
      return gaussian(values, amount);
    case "mean":
      return runningMean(values, amount);
  }
}

/** Exponential moving average, corrected for its start at zero (Kingma and Ba 2015, section 3). */
function exponential(values: readonly number[], weight: number): number[] {
  let average = 0;
  let mass = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    average = weight * average + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return average / mass;
  });
}

const REACH = 3;

/** A Gaussian kernel, cut off at three standard deviations and normalized by what lies within the curve. */
function gaussian(values: readonly number[], deviation: number): number[] {
  const reach = Math.ceil(REACH * deviation);
  const kernel = Array.from({ length: 2 * reach + 1 }, (_, at) => Math.exp(-0.5 * ((at - reach) / deviation) ** 2));
  return averaged(values, reach, reach, (offset) => kernel[offset + reach]!);
}

/** The mean of a value and those before it. Each window is added up by itself: in a running sum a spike leaves its rounding error behind. */
function runningMean(values: readonly number[], points: number): number[] {
  return averaged(values, points - 1, 0, () => 1);
}

function averaged(
  values: readonly number[],
  before: number,
  after: number,
  weightAt: (offset: number) => number,
): number[] {
  return values.map((value, index) => {
    if (!Number.isFinite(value)) return value;
    let [sum, mass] = [0, 0];
    for (let at = Math.max(0, index - before); at <= Math.min(values.length - 1, index + after); at++) {
      if (!Number.isFinite(values[at])) continue;
      const weight = weightAt(at - index);
      sum += weight * values[at]!;
      mass += weight;
    }
    return sum / mass;
  });
}
