import { Button, Group, Modal, Text, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { NumberField } from "@/components/ui/NumberField";
import { asApiError } from "@/lib/errors";
import { count } from "@/lib/format";
import { wholeNumberProblem } from "@/lib/numbers";
import type { Checkpoint } from "@/lib/types";
import { useRestore } from "../api/checkpoints";

interface Props {
  checkpoint: Checkpoint;
  jobName: string;
  onClose(): void;
  onRestored(jobId: string): void;
}

export function RestoreDialog({ checkpoint, jobName, onClose, onRestored }: Props) {
  const [name, setName] = useState(`${jobName}-restored`);
  const [steps, setSteps] = useState<number | string>();
  const problem = wholeNumberProblem(steps, checkpoint.step + 1);
  const restore = useRestore();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (problem) return;
    restore.mutate(
      { checkpointId: checkpoint.id, name, steps: steps === undefined ? null : Number(steps) },
      { onSuccess: (job) => onRestored(job.id) },
    );
  };
  return (
    <Modal
      opened
      onClose={onClose}
      title={`Restore from step ${count(checkpoint.step)}`}
      centered
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <form onSubmit={submit} className="stack">
        <Text size="sm">A new job continues from this checkpoint. {jobName} itself is not changed.</Text>
        <TextInput
          label="Name of the new job"
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          data-autofocus
        />
        <NumberField
          label="Stop at step"
          description="Leave blank to use the spec's value"
          error={problem}
          value={steps}
          onValue={setSteps}
        />
        {restore.error && (
          <Text size="sm" role="alert" c="var(--bad-text)">
            {asApiError(restore.error).message}
          </Text>
        )}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={restore.isPending} disabled={problem !== null}>
            Start job
          </Button>
        </Group>
      </form>
    </Modal>
  );
}
