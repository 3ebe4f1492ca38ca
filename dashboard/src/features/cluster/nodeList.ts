/** Which nodes the page shows, and what a row says of one. Pure. */
import type { Node } from "@/lib/types";

/** More nodes than this are rows of a table, or the page would be metres long. */
export const MOST_CARDS = 12;

export interface NodeFilter {
  /** In the name, the address, a label, a taint, the pool, or a job that runs there. */
  find?: string;
  state?: string;
}

export function filtered(nodes: readonly Node[], { find, state }: NodeFilter): Node[] {
  const text = find?.trim().toLowerCase() ?? "";
  return nodes.filter((node) => (!state || node.state === state) && wordsOf(node).some((word) => word.includes(text)));
}

function wordsOf({ name, hostname, address, pool, labels, taints, slots }: Node): string[] {
  const marks = [...Object.entries(labels), ...Object.entries(taints)].map(([key, value]) => `${key}=${value}`);
  const jobs = slots.flatMap(({ job_name: job }) => job ?? []);
  return [name, hostname, address, pool ?? "", ...marks, ...jobs].map((word) => word.toLowerCase());
}

/** The states that nodes have, with how many have each, the most frequent first. */
export function statesOf(nodes: readonly Node[]): { state: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const { state } of nodes) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, count]) => ({ state, count })).sort((one, other) => other.count - one.count);
}

/** The names of the jobs on a node, each once, with their ids. */
export function jobsOn(node: Node): { id: string; name: string }[] {
  const jobs = new Map(node.slots.flatMap(({ job_id: id, job_name: name }) => (id === null ? [] : [[id, name ?? id]])));
  return [...jobs].map(([id, name]) => ({ id, name }));
}

export function usedSlots({ slots }: Node): number {
  return slots.filter(({ job_id: job }) => job !== null).length;
}

/** The mean utilization of a node's cards in percent; null: none tells. */
export function meanUtilization({ gpus }: Node): number | null {
  const read = gpus.flatMap(({ utilization_percent: used }) => used ?? []);
  return read.length === 0 ? null : read.reduce((sum, used) => sum + used, 0) / read.length;
}
