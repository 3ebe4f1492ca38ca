/** What a step's gradients tell: ranges over ranks, what is wrong, and which bins of the histograms are worth drawing. */
import { count, plural } from "@/lib/format";
import type { ParameterGradients, StepGradients } from "@/lib/types";

export interface Range {
  least: number;
  most: number;
}

function rangeOf(values: readonly number[]): Range | null {
  return values.length > 0 ? { least: Math.min(...values), most: Math.max(...values) } : null;
}

/** Over the ranks whose gradient is finite. */
export function normsOf({ ranks }: ParameterGradients): Range | null {
  return rangeOf(ranks.flatMap(({ norm }) => norm ?? []));
}

export function zeroSharesOf({ ranks }: ParameterGradients): Range | null {
  return rangeOf(ranks.filter(({ elements }) => elements > 0).map(({ zeros, elements }) => zeros / elements));
}

export function notFinite({ ranks }: ParameterGradients): number {
  return ranks.reduce((sum, { nans, infs }) => sum + nans + infs, 0);
}

export interface Trouble {
  tone: "bad" | "warn";
  text: string;
}

/** NaN and infinite elements; gradients that are zero throughout, or that backward has not reached. */
export function troublesOf(parameter: ParameterGradients): Trouble[] {
  const bad = parameter.ranks.filter(({ nans, infs }) => nans + infs > 0);
  const dead = parameter.ranks.filter(({ zeros, elements }) => elements > 0 && zeros === elements);
  const nans = bad.reduce((sum, rank) => sum + rank.nans, 0);
  const infs = bad.reduce((sum, rank) => sum + rank.infs, 0);
  const counts = [...(nans ? [`${count(nans)} NaN`] : []), ...(infs ? [`${count(infs)} infinite`] : [])];
  return [
    ...(bad.length > 0
      ? [
          {
            tone: "bad" as const,
            text: `${counts.join(", ")} on ${ranksInWords(bad)}${bad.length > 1 ? " together" : ""}`,
          },
        ]
      : []),
    ...(dead.length > 0 ? [{ tone: "warn" as const, text: `all zero on ${ranksInWords(dead)}` }] : []),
    ...(parameter.unused.length > 0
      ? [{ tone: "warn" as const, text: `not reached on ${inWords(parameter.unused)}` }]
      : []),
  ];
}

const ranksInWords = (ranks: readonly { rank: number }[]) => inWords(ranks.map(({ rank }) => rank));

const MOST_NAMED = 4;

function inWords(ranks: readonly number[]): string {
  if (ranks.length > MOST_NAMED) return plural(ranks.length, "rank");
  return `rank ${ranks.join(", ")}`;
}

/** What stands in the table, in one sentence. */
export function sentenceOf({ parameters, ranks, step }: StepGradients): string {
  const ready = ranks.filter(({ state }) => state === "ready").length;
  const bad = parameters.filter((each) => notFinite(each) > 0).length;
  const dead = parameters.filter((each) => zeroSharesOf(each)?.least === 1).length;
  const found = [
    ...(bad > 0 ? [`${count(bad)} not finite`] : []),
    ...(dead > 0 ? [`${count(dead)} zero throughout`] : []),
  ];
  const verdict = found.length > 0 ? found.join(", ") : "all finite, none zero throughout";
  return `Step ${count(step)}: ${plural(parameters.length, "parameter")} on ${plural(ready, "rank")}, ${verdict}.`;
}

/** First and last bin that any parameter has elements in: the same stretch for all, so that they can be compared. */
export function binsInUse(parameters: readonly ParameterGradients[]): [number, number] {
  let first = Infinity;
  let last = -1;
  for (const { histogram } of parameters)
    histogram.forEach((elements, bin) => {
      if (elements === 0) return;
      first = Math.min(first, bin);
      last = Math.max(last, bin);
    });
  return last < 0 ? [0, 0] : [first, last];
}

/** "1e-3 to 3.16e-3", of a bin of the histogram. */
export function binLabel(edges: readonly number[], bin: number): string {
  const [from, to] = [edges[bin - 1], edges[bin]];
  if (from === undefined) return `below ${edgeLabel(to!)}`;
  return to === undefined ? `${edgeLabel(from)} and more` : `${edgeLabel(from)} to ${edgeLabel(to)}`;
}

function edgeLabel(edge: number): string {
  return edge === 0 ? "0" : Number(edge.toPrecision(2)).toExponential().replace("e+", "e");
}
