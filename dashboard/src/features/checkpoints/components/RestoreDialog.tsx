import { Button, Group, Modal, NumberInput, Text, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { asApiError } from "@/lib/errors";
import { count } from "@/lib/format";
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
  const [steps, setSteps] = useState<number | null>(null);
  const restore = useRestore();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    restore.mutate({ checkpointId: checkpoint.id, name, steps }, { onSuccess: (job) => onRestored(job.id) });
  };
  return (
    <Modal opened onClose={onClose} title={`Restore from step ${count(checkpoint.step)}`} centered closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} className="stack">
        <Text size="sm">A new job continues from this checkpoint; {jobName} is left as it is.</Text>
        <TextInput label="Name of the new job" value={name} onChange={(event) => setName(event.currentTarget.value)} data-autofocus />
        <NumberInput
          label="Train to step" description="Empty: as the spec says" min={checkpoint.step + 1} allowDecimal={false} value={steps ?? ""}
          onChange={(value) => setSteps(value === "" ? null : Number(value))}
        />
        {restore.error && <Text size="sm" role="alert" c="var(--bad-text)">{asApiError(restore.error).message}</Text>}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>Close</Button>
          <Button type="submit" loading={restore.isPending}>Start job</Button>
        </Group>
      </form>
    </Modal>
  );
}
