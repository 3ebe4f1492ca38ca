/** What a change of size means, before it is asked for. Pure. */
import { plural } from "@/lib/format";
import type { Job } from "@/lib/types";

/** The API's own limit. */
export const MOST_NODES = 4096;

/** In nodes: what the job should have now, and what it may be given. */
export function sizesOf({ spec, world_size: world }: Job): { now: number; least: number; most: number; slots: number } {
  const { slots_per_node: slots = 1, min_nodes: least, max_nodes: most } = spec?.resources ?? {};
  return { now: Math.round(world / slots), least: least ?? 1, most: most ?? MOST_NODES, slots };
}

/** What will happen, in words; null where nothing changes. */
export function whatResizingDoes(job: Job, nodes: number): string | null {
  const { now, slots } = sizesOf(job);
  if (nodes === now) return null;
  const ranks = plural(nodes * slots, "rank");
  if (job.state === "queued" || job.state === "paused" || job.desired === "pause") return `It is placed with ${ranks} when it runs next.`;
  if (job.spec?.fault_tolerance?.recovery !== "close_up") return `It stops with a checkpoint, and goes on with ${ranks} as soon as there are slots.`;
  return `${inPassing(nodes * slots - (job.actual_world_size ?? job.world_size))}${alsoGrows(job, nodes)}`;
}

/** A gang that closes up changes its size while it runs. */
function inPassing(change: number): string {
  if (change === 0) return "It has as many ranks already, and keeps them.";
  if (change < 0) return `${plural(-change, "rank")} ${change === -1 ? "leaves" : "leave"} after a step that all have finished; the others go on. No step is lost.`;
  return `${plural(change, "rank")} ${change === 1 ? "warms up" : "warm up"} beside the running ones as soon as there are slots, and ${change === 1 ? "joins" : "join"} after a step. Nothing stops, and no step is lost.`;
}

/** At the size that its spec names, and at no other, a job takes slots that nobody waits for. */
function alsoGrows({ spec }: Job, nodes: number): string {
  const resources = spec?.resources;
  const most = resources?.max_nodes;
  return most != null && most > nodes && nodes === (resources?.nodes ?? 1) ? ` It grows up to ${plural(most, "node")} in slots that nobody waits for.` : "";
}
