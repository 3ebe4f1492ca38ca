import { Button, Group, Text } from "@mantine/core";
import { IconPlayerTrackNext } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { NumberField } from "@/components/ui/NumberField";
import { newIdempotencyKey } from "@/lib/client";
import { count } from "@/lib/format";
import { wholeNumberProblem } from "@/lib/numbers";
import { useRoleRefusal } from "@/lib/ownership";
import type { Experiment, Job, Trial } from "@/lib/types";
import { useExtend } from "../api/extend";

interface Props {
  experiment: Experiment;
  trials: readonly Trial[];
}

/** Runs the best trial longer, as a new job. */
export function RunLonger({ experiment: { id, best_trial: best }, trials }: Props) {
  /** The best trial when the dialog was opened: another one may become the best meanwhile. */
  const [asked, setAsked] = useState<number | null>(null);
  const refused = useRoleRefusal("member") ?? (best === null ? "No trial has a result yet." : null);
  return (
    <>
      <Guarded refused={refused}>
        <Button variant="default" leftSection={<IconPlayerTrackNext size={14} />} onClick={() => setAsked(best)}>
          Run the best one longer
        </Button>
      </Guarded>
      {asked !== null && (
        <Dialog onClose={() => setAsked(null)} title={`Run trial ${asked} longer`}>
          <Extending
            experimentId={id}
            index={asked}
            trial={trials.find(({ index }) => index === asked)}
            onClose={() => setAsked(null)}
          />
        </Dialog>
      )}
    </>
  );
}

interface ExtendingProps {
  experimentId: string;
  index: number;
  /** Undefined until the trials are there. */
  trial: Trial | undefined;
  onClose(): void;
}

function Extending({ experimentId, index, trial, onClose }: ExtendingProps) {
  const [steps, setSteps] = useState<number | string>();
  const [idempotencyKey, setKey] = useState(newIdempotencyKey);
  const extend = useExtend(experimentId);
  const problem = wholeNumberProblem(steps, 1);
  if (extend.data) return <Extended job={extend.data} onClose={onClose} />;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typeof steps === "number" && problem === null) extend.mutate({ trial: index, steps, idempotencyKey });
  };
  return (
    <form onSubmit={submit} className="stack">
      <Text size="sm">
        A new job goes on from the newest checkpoint of trial {index}. The experiment stays as it is.
      </Text>
      <NumberField
        label="Train to step"
        description={trial?.job ? `It has done ${count(trial.job.step)}, which count.` : "Those that are done count."}
        error={problem}
        value={steps}
        onValue={(next) => {
          setSteps(next);
          setKey(newIdempotencyKey());
        }}
        data-autofocus
      />
      {extend.error && (
        <Text size="sm" role="alert" c="var(--bad-text)">
          <ErrorText error={extend.error} />
        </Text>
      )}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button type="submit" loading={extend.isPending} disabled={steps === undefined || problem !== null}>
          Start job
        </Button>
      </Group>
    </form>
  );
}

function Extended({ job: { id, name }, onClose }: { job: Job; onClose(): void }) {
  return (
    <div className="stack">
      <Text size="sm" role="status">
        Submitted:{" "}
        <Link to="/jobs/$jobId" params={{ jobId: id }}>
          {name}
        </Link>
      </Text>
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          Close
        </Button>
      </Group>
    </div>
  );
}
