/** What the curves of a job are marked with: each new generation, and what ended the one before it. */
import { costWords, headline } from "@/features/incidents/incidents";
import type { Mark } from "@/features/metrics/marks";
import { count, plural } from "@/lib/format";
import type { Generation, Incident, Job } from "@/lib/types";

export function marksOf(job: Job, incidents: readonly Incident[]): Mark[] {
  const later = (job.generations ?? []).slice(1).map((generation) => {
    const incident = incidents.find(({ next_generation }) => next_generation === generation.generation);
    return markOf(generation, incident, startOf(generation, incident));
  });
  return [...later, ...incidents.filter(({ action }) => action === "gave_up").map(endMark)];
}

/** The step that a generation continues from. A script starts again from what it has saved, which may be unknown: null. */
function startOf({ start_step: step }: Generation, incident: Incident | undefined): number | null {
  return step ?? incident?.resumed_step ?? null;
}

function markOf(
  { generation, world_size: world }: Generation,
  incident: Incident | undefined,
  start: number | null,
): Mark {
  const ranks = plural(world, "rank");
  const continues =
    start === null
      ? `Generation ${generation} restarted on ${ranks} from an unknown step`
      : `Generation ${generation} continues from step ${count(start)} on ${ranks}`;
  const step = start ?? incident?.step ?? 0;
  if (!incident) return { step, generation, kind: "generation", text: `${continues}.` };
  const cost = costWords(incident);
  return { step, generation, kind: "incident", text: `${headline(incident)}. ${continues}${cost && `: ${cost}`}.` };
}

function endMark(incident: Incident): Mark {
  return {
    step: incident.step,
    generation: incident.generation,
    ends: true,
    kind: "incident",
    text: `${headline(incident)}. The job ended at step ${count(incident.step)}.`,
  };
}
