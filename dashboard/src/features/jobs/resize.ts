/** What a change of size means, before it is asked for. Pure. */
import { plural } from "@/lib/format";
import type { Job } from "@/lib/types";

/** The API's own limit. */
export const MOST_NODES = 4096;

/** In nodes: what the job should have now, and what it may be given. */
export function sizesOf({ spec, world_size: world }: Job): { now: number; least: number; most: number; slots: number } {
  const { nodes = 1, slots_per_node: slots = 1, min_nodes: least, max_nodes: most } = spec?.resources ?? {};
  const [fewest, highest] = spec?.script == null ? [1, MOST_NODES] : [nodes, nodes];
  return { now: Math.round(world / slots), least: least ?? fewest, most: most ?? highest, slots };
}

/** What will happen, in words; null where nothing changes. */
export function whatResizingDoes(job: Job, nodes: number): string | null {
  const { now, slots } = sizesOf(job);
  if (nodes === now) return null;
  const ranks = plural(nodes * slots, "rank");
  if (job.state === "queued" || job.state === "paused" || job.desired === "pause")
    return `The job starts with ${ranks} when it runs next.`;
  if (job.spec?.script != null)
    return `The ranks get SIGTERM and time to save. The job restarts with ${ranks} as soon as there are slots.`;
  if (job.spec?.fault_tolerance?.recovery !== "close_up")
    return `The job saves a checkpoint and stops. It continues with ${ranks} as soon as there are slots.`;
  return `${inPassing(nodes * slots - (job.actual_world_size ?? job.world_size))}${alsoGrows(job, nodes)}`;
}

/** A gang that closes up changes its size while it runs. */
function inPassing(change: number): string {
  if (change === 0) return "The job has this many ranks already, and keeps them.";
  if (change < 0)
    return `${plural(-change, "rank")} ${change === -1 ? "leaves" : "leave"} after a step that all ranks have finished. The others continue. No step is lost.`;
  return `${plural(change, "rank")} ${change === 1 ? "warms up" : "warm up"} beside the running ones as soon as there are slots, and ${change === 1 ? "joins" : "join"} after a step. Nothing stops, and no step is lost.`;
}

/** Only at the size that its spec names does a job grow into spare slots: slots that no other job waits for. */
function alsoGrows({ spec }: Job, nodes: number): string {
  const resources = spec?.resources;
  const most = resources?.max_nodes;
  return most != null && most > nodes && nodes === (resources?.nodes ?? 1)
    ? ` It may grow up to ${plural(most, "node")} while slots are spare.`
    : "";
}
