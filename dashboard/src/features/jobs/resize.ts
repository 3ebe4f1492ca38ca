/** What a change of size means, before it is asked for. Pure. */
import { plural } from "@/lib/format";
import type { Job } from "@/lib/types";

/** The API's own limits. */
export const MOST = { nodes: 4096, slots: 4096 * 64 } as const;

export interface Sizes {
  /** What the job's spec counts in: it asks for `slots`, or for `nodes` with `slots` ranks each. */
  unit: keyof typeof MOST;
  now: number;
  least: number;
  most: number;
  slots: number;
}

/** In the job's unit: what it should have now, and what it may be given. */
export function sizesOf({ spec, world_size: world }: Job): Sizes {
  const { unit, size, least, most, slots } = askedFor(spec);
  const [fewest, highest] = spec?.script == null ? [1, MOST[unit]] : [size, size];
  return { unit, now: Math.round(world / slots), least: least ?? fewest, most: most ?? highest, slots };
}

function askedFor(spec: Job["spec"]) {
  const resources: Partial<NonNullable<Job["spec"]>["resources"]> = spec?.resources ?? {};
  if (resources.slots != null)
    return {
      unit: "slots",
      size: resources.slots,
      least: resources.min_slots,
      most: resources.max_slots,
      slots: 1,
    } as const;
  const { nodes: size = 1, slots_per_node: slots = 1, min_nodes: least, max_nodes: most } = resources;
  return { unit: "nodes", size, least, most, slots } as const;
}

/** What will happen, in words; null where nothing changes. */
export function whatResizingDoes(job: Job, size: number): string | null {
  const { now, slots } = sizesOf(job);
  if (size === now) return null;
  const ranks = plural(size * slots, "rank");
  if (job.state === "queued" || job.state === "paused" || job.desired === "pause")
    return `The job starts with ${ranks} when it runs next.`;
  if (job.spec?.script != null)
    return `The ranks get SIGTERM and time to save. The job restarts with ${ranks} as soon as there are slots.`;
  if (job.spec?.fault_tolerance?.recovery !== "close_up")
    return `The job saves a checkpoint and stops. It continues with ${ranks} as soon as there are slots.`;
  return `${inPassing(size * slots - (job.actual_world_size ?? job.world_size))}${alsoGrows(job, size)}`;
}

/** A gang that closes up changes its size while it runs. */
function inPassing(change: number): string {
  if (change === 0) return "The job has this many ranks already, and keeps them.";
  if (change < 0)
    return `${plural(-change, "rank")} ${change === -1 ? "leaves" : "leave"} after a step that all ranks have finished. The others continue. No step is lost.`;
  return `${plural(change, "rank")} ${change === 1 ? "warms up" : "warm up"} beside the running ones as soon as there are slots, and ${change === 1 ? "joins" : "join"} after a step. Nothing stops, and no step is lost.`;
}

/** Only at the size that its spec names does a job grow into spare slots: slots that no other job waits for. */
function alsoGrows({ spec }: Job, size: number): string {
  const { unit, size: asked, most } = askedFor(spec);
  return most != null && most > size && size === asked
    ? ` It may grow up to ${plural(most, unit === "nodes" ? "node" : "slot")} while slots are spare.`
    : "";
}
