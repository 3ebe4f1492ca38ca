import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { count } from "@/lib/format";
import { isTerminal, soFar } from "@/lib/jobs";
import type { Job, JobGradients } from "@/lib/types";
import { gradientsQuery, stepGradientsQuery } from "../api/gradients";
import { NextStepForm } from "./NextStepForm";
import { StepTable } from "./StepTable";

interface Props {
  job: Job;
  /** The step that is shown; the newest without one. */
  step: number | undefined;
  onStep(step: number): void;
}

/** Each rank's own gradients, before ranks exchange them: at the steps that the spec chooses, and at those that are asked for. */
export function GradientsPanel({ job, step, onStep }: Props) {
  const ours = job.spec != null && job.spec.script == null;
  const chosen = job.spec?.gradients != null;
  const running = ours && job.state === "running";
  const query = useQuery({ ...gradientsQuery(job.id, chosen && !isTerminal(job.state)), enabled: ours });
  if (!chosen && !running && !query.data?.steps.length) return null;
  const shown = query.data && shownStep(query.data, step);
  return (
    <Panel
      title="Gradients"
      flush
      actions={
        shown !== undefined && (
          <Select
            aria-label="Step of the gradients"
            w={140}
            searchable
            allowDeselect={false}
            value={String(shown)}
            data={query.data!.steps.map(({ step }) => ({ value: String(step), label: `Step ${count(step)}` }))}
            onChange={(value) => value !== null && onStep(Number(value))}
          />
        )
      }
    >
      {running && <NextStepForm jobId={job.id} asked={query.data?.request ?? null} />}
      <PanelStates
        source={query}
        what="the gradients"
        isEmpty={({ steps }) => steps.length === 0}
        empty={
          <EmptyState title={soFar("No step is recorded", !isTerminal(job.state))}>
            {chosen ? (
              `The spec chooses the steps: ${chosenSteps(job)}.`
            ) : (
              <>
                Record one while the job runs, or set <code>gradients</code> in the spec.
              </>
            )}
          </EmptyState>
        }
      >
        {() => shown !== undefined && <Step jobId={job.id} step={shown} />}
      </PanelStates>
    </Panel>
  );
}

function Step({ jobId, step }: { jobId: string; step: number }) {
  const query = useQuery(stepGradientsQuery(jobId, step));
  return (
    <PanelStates source={query} what={`the gradients of step ${step}`} rows={6}>
      {(found) => <StepTable found={found} />}
    </PanelStates>
  );
}

/** The step of the URL if it is recorded, else the newest that has arrived. */
function shownStep({ steps }: JobGradients, wanted: number | undefined): number | undefined {
  const known = steps.find(({ step }) => step === wanted) ?? steps.findLast(({ ready }) => ready > 0) ?? steps.at(-1);
  return known?.step;
}

function chosenSteps({ spec }: Job): string {
  const { steps = [], every } = (spec?.gradients ?? {}) as { steps?: number[]; every?: number | null };
  return [...(steps.length > 0 ? [steps.join(", ")] : []), ...(every != null ? [`every ${count(every)}`] : [])].join(
    " and ",
  );
}
