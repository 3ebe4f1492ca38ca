/** What the curves of a job are marked with: each new generation, and what ended the one before it. */
import { costWords, headline } from "@/features/incidents/incidents";
import type { Mark } from "@/features/metrics/marks";
import { count, plural } from "@/lib/format";
import type { Generation, Incident, Job } from "@/lib/types";

export function marksOf(job: Job, incidents: readonly Incident[]): Mark[] {
  const later = (job.generations ?? []).slice(1).map((generation) =>
    markOf(
      generation,
      incidents.find(({ next_generation }) => next_generation === generation.generation),
    ),
  );
  return [...later, ...incidents.filter(({ action }) => action === "gave_up").map(endMark)];
}

function markOf({ generation, start_step: step, world_size: world }: Generation, incident: Incident | undefined): Mark {
  const continues = `Generation ${generation} continues from step ${count(step)} on ${plural(world, "rank")}`;
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
