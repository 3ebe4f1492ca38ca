/** Which ranks' cards are drawn. Pure. */
import type { JobUsage } from "@/lib/types";
import { MOST_LINES } from "./rankLines";

export function firstRanks(world: number): number[] {
  return Array.from({ length: Math.min(world, MOST_LINES) }, (_, rank) => rank);
}

/** The first rank of each node, of as many nodes as there are colours. */
export function firstOfNodes(cards: JobUsage["cards"]): number[] {
  const first = new Map<string, number>();
  for (const { rank, node_name: node } of cards) first.set(node, Math.min(rank, first.get(node) ?? rank));
  return [...first.values()].sort((one, other) => one - other).slice(0, MOST_LINES);
}
