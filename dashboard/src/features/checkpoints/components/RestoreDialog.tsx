import { Button, Group, Radio, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorText } from "@/components/ui/ErrorText";
import { NumberField } from "@/components/ui/NumberField";
import { count } from "@/lib/format";
import { wholeNumberProblem } from "@/lib/numbers";
import { issueOf } from "@/lib/spec/issues";
import { specSchemaQuery } from "@/lib/spec/query";
import { validate } from "@/lib/spec/schema";
import type { Checkpoint } from "@/lib/types";
import { useRestore } from "../api/checkpoints";

interface Props {
  checkpoint: Checkpoint;
  jobName: string;
  /** Why this user may not set the job itself back, or why it cannot be now; null if it can. */
  notInPlace: string | null;
  /** The step at which the job ends; null where that is not known here. */
  endsAt: number | null;
  onClose(): void;
  onRestored(jobId: string): void;
}

export function RestoreDialog({ checkpoint, jobName, notInPlace, endsAt, onClose, onRestored }: Props) {
  const [name, setName] = useState(`${jobName}-restored`);
  const [inPlace, setInPlace] = useState(false);
  const [steps, setSteps] = useState<number | string>();
  const atItsEnd = endsAt !== null && checkpoint.step >= endsAt;
  const problem = wholeNumberProblem(steps, checkpoint.step + 1);
  const { data: schema } = useQuery(specSchemaQuery);
  const wanted = name.trim();
  const nameProblem = !inPlace && schema ? issueOf(validate(schema, { name: wanted }), "/name") : undefined;
  const missing = atItsEnd && steps === undefined;
  const restore = useRestore();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (problem || nameProblem || missing) return;
    restore.mutate(
      { checkpointId: checkpoint.id, name: wanted, inPlace, steps: steps === undefined ? null : Number(steps) },
      { onSuccess: (job) => onRestored(job.id) },
    );
  };
  return (
    <Dialog onClose={onClose} title={`Restore from step ${count(checkpoint.step)}`}>
      <form onSubmit={submit} className="stack">
        <Radio.Group
          label="What continues from this checkpoint"
          value={inPlace ? "same" : "new"}
          onChange={(chosen) => setInPlace(chosen === "same")}
        >
          <Stack gap="xs" mt="xs">
            <Radio value="new" label="A new job" description={`${jobName} itself is not changed.`} />
            <Radio
              value="same"
              label={jobName}
              disabled={notInPlace !== null}
              description={
                notInPlace ??
                "It is queued again and repeats the later steps. Its newer checkpoints no longer count, and are deleted by retention."
              }
            />
          </Stack>
        </Radio.Group>
        {!inPlace && (
          <TextInput
            label="Name of the new job"
            value={name}
            error={nameProblem}
            onChange={(event) => setName(event.currentTarget.value)}
            data-autofocus={!atItsEnd || undefined}
          />
        )}
        <NumberField
          label="Stop at step"
          description={
            atItsEnd
              ? `The job ended at step ${count(endsAt)}. Enter a later step to train on.`
              : "Leave blank to use the spec's value"
          }
          data-autofocus={atItsEnd || undefined}
          error={problem}
          value={steps}
          onValue={setSteps}
        />
        {restore.error && (
          <Text size="sm" role="alert" c="var(--bad-text)">
            <ErrorText error={restore.error} alone />
          </Text>
        )}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button
            type="submit"
            loading={restore.isPending || restore.isSuccess}
            disabled={problem !== null || nameProblem !== undefined || missing}
          >
            {inPlace ? `Set ${jobName} back` : "Start job"}
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
