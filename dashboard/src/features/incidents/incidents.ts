/** What the incident log derives from an incident: its words, its phases, whether it is over. Pure. */
import { whatHappened } from "@/lib/failures";
import { count, MISSING, plural, sentence, shortTime } from "@/lib/format";
import type { Incident, Job } from "@/lib/types";

export type PhaseName = Incident["phases"][number]["name"];

interface PhaseLook {
  label: string;
  color: string;
  meaning: string;
}

export const PHASES: Record<PhaseName, PhaseLook> = {
  detect: { label: "Detect", color: "--series-2", meaning: "from the fault until the coordinator learned of it" },
  decide: { label: "Decide", color: "--series-4", meaning: "until the coordinator had decided what to do" },
  place: { label: "Place", color: "--mark-2", meaning: "until the job had slots again" },
  fence: { label: "Fence", color: "--series-5", meaning: "until the old ranks were released or terminated" },
  rebuild: { label: "Rebuild", color: "--series-3", meaning: "until the process group was re-established" },
  transfer: { label: "Transfer", color: "--series-1", meaning: "until all ranks had the newest committed state" },
  first_step: { label: "First step", color: "--series-6", meaning: "until the next step finished" },
};

const DONE = { closed_up: "recovered", fell_back: "fell back", restarted: "restarted", gave_up: "gave up" } as const;
const DOING = {
  closed_up: "recovering",
  fell_back: "falling back",
  restarted: "restarting",
  gave_up: "giving up",
} as const;
const CUT_SHORT: Partial<Record<Incident["outcome"], string>> = {
  overtaken: "superseded by the next fault",
  stopped: "stopped before its next step",
};

/** Its recovery is under way. */
export function isOpen({ outcome }: Incident): boolean {
  return outcome === "open";
}

/** What was done, or is being done. */
export function actionWords(incident: Incident): string {
  return (isOpen(incident) ? DOING : DONE)[incident.action];
}

/** "to step 120, in place": where a fault threw the job back to, if to a checkpoint. */
export function backTo({ action, resumed_step: step }: Incident): string | undefined {
  if (step === null || !(action === "fell_back" || action === "restarted")) return undefined;
  return `to step ${count(step)}, ${action === "fell_back" ? "in place" : "in new processes"}`;
}

/** Why a recovery did not come to its first step, or nothing. */
export function cutShort({ outcome, action }: Incident): string | undefined {
  return action === "gave_up" ? undefined : CUT_SHORT[outcome];
}

/** The fault since which a job has had fewer ranks than it should: the one that ended its last whole generation. */
export function faultBehind(
  incidents: readonly Incident[],
  { generations, world_size: world }: Job,
): Incident | undefined {
  const whole = generations?.findLast(({ world_size: size }) => size >= world)?.generation;
  return incidents.find(
    ({ generation, action }) => generation === whole && (action === "closed_up" || action === "fell_back"),
  );
}

/** "1 of 2": how many ranks went on, of how many there were. */
export function ranksAfter({ old_size: before, new_size: after }: Incident): string | null {
  return after === null ? null : `${after} of ${before}`;
}

/** Which rank failed, and how. The rank's own message is shown apart from it, because it may be long. */
export function headline({ culprit, what }: Incident): string {
  return culprit ? whatHappened(culprit) : sentence(what);
}

/** The phases in words, for the bar that shows them. */
export function phaseSentence({ phases, outage_seconds: outage }: Incident): string {
  const parts = phases
    .map(({ name, seconds }) => `${PHASES[name].label.toLowerCase()} ${shortTime(seconds)}`)
    .join(", ");
  return outage === null ? `So far: ${parts}` : `Outage of ${shortTime(outage)}: ${parts}`;
}

/** How many steps had to be repeated. Of a script that runs again that may be unknown for good. */
export function stepsLost({ steps_lost: lost, outcome }: Incident): number | string {
  return lost ?? (outcome === "recovered" ? "unknown" : MISSING);
}

/** What it cost: "outage 97 ms, no step lost". */
export function costWords({ outage_seconds: outage, steps_lost: lost }: Incident): string {
  const steps = lost === null ? null : lost === 0 ? "no step lost" : `${plural(lost, "step")} lost`;
  return [outage === null ? null : `outage ${shortTime(outage)}`, steps].filter((part) => part !== null).join(", ");
}
