/** Laws of scaling and the cost model of communication beside what they were fitted to. Pure. */
import { bytes, measured, percent, shortTime, si } from "@/lib/format";
import type { Analysis, Fit } from "@/lib/types";

interface Law {
  title: string;
  /** What it foretells. */
  of: string;
  write(value: number): string;
  parameters(values: Record<string, number>): string;
}

const serialShare = (values: Record<string, number>) => `serial share ${percent(values.serial_share, 1)}`;

export const LAWS: Record<Fit["law"], Law> = {
  amdahl: { title: "Amdahl's law", of: "step time", write: shortTime, parameters: serialShare },
  gustafson: {
    title: "Gustafson's law",
    of: "samples per second",
    write: (value) => si(value),
    parameters: serialShare,
  },
  alpha_beta: {
    title: "Alpha-beta model",
    of: "exposed communication of a step",
    write: shortTime,
    parameters: ({ latency_seconds: latency, bytes_per_second: bandwidth }) =>
      `${shortTime(latency)} a message, ${bytes(bandwidth)}/s`,
  },
};

export interface FitPoint {
  fit: Fit;
  ranks: number;
  measured: number;
  fitted: number;
  /** Fitted over measured, less 1. */
  residual: number;
}

export function fitPoints(fit: Fit): FitPoint[] {
  return fit.ranks.map((ranks, index) => {
    const [value, fitted] = [fit.measured[index]!, fit.fitted[index]!];
    return { fit, ranks, measured: value, fitted, residual: fitted / value - 1 };
  });
}

/** Stays the same from one analysis to the next. */
export function fitId({ law, series }: Fit): string {
  return `${law}/${series}`;
}

export function fitTitle({ law, series }: Fit): string {
  return `${LAWS[law].title}: ${series}`;
}

/** "+4.2%", "-12%", "0%". */
export function signedPercent(share: number): string {
  const percents = Number((share * 100).toFixed(Math.abs(share) < 0.1 ? 1 : 0));
  return `${percents > 0 ? "+" : ""}${percents === 0 ? 0 : percents}%`;
}

/** Why there is no fit, and how much there is of what one needs. */
export function fitsNeed({ configurations }: Analysis): string {
  const worlds = new Set(configurations.filter((one) => one.step_seconds !== null).map((one) => one.world_size));
  return (
    "A law is fitted to three numbers of ranks with all else equal; the alpha-beta model to three configurations of one " +
    `strategy that send different amounts over several ranks. Numbers of ranks measured so far: ${measured(worlds.size)}.`
  );
}
