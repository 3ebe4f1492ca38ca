import { Button, Group, Text, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorText } from "@/components/ui/ErrorText";
import type { ModelVersion } from "@/lib/types";
import { useDeleteVersion, useMoveAlias, useRemoveAlias } from "../api/models";

interface Props {
  version: ModelVersion;
  onClose(): void;
}

/** Moves an alias to a version, or removes one that it has. */
export function AliasDialog({ version, onClose }: Props) {
  const [alias, setAlias] = useState(version.aliases[0] ?? "production");
  const move = useMoveAlias();
  const remove = useRemoveAlias();
  const error = move.error ?? remove.error;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    move.mutate({ ...version, alias: alias.trim() }, { onSuccess: onClose });
  };
  return (
    <Dialog onClose={onClose} title={`Aliases of ${version.model}:${version.number}`}>
      <form onSubmit={submit} className="stack">
        <TextInput
          label="Alias"
          description="It moves here from any other version"
          value={alias}
          required
          onChange={(event) => setAlias(event.currentTarget.value)}
          data-autofocus
        />
        {error && (
          <Text size="sm" role="alert" c="var(--bad-text)">
            <ErrorText error={error} />
          </Text>
        )}
        <Group justify="flex-end" gap="xs">
          {version.aliases.map((each) => (
            <Button
              key={each}
              variant="default"
              loading={remove.isPending}
              onClick={() => remove.mutate({ model: version.model, alias: each }, { onSuccess: onClose })}
            >
              {`Remove ${each}`}
            </Button>
          ))}
          <Button type="submit" loading={move.isPending} disabled={alias.trim() === ""}>
            Move here
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}

/** Asks whether to delete a version, and says what is lost. */
export function DeleteVersionDialog({ version, onClose }: Props) {
  const remove = useDeleteVersion();
  return (
    <Confirm
      opened
      title={`Delete ${version.model}:${version.number}?`}
      verb="Delete version"
      busy={remove.isPending}
      error={remove.error}
      onClose={onClose}
      onConfirm={() => remove.mutate(version, { onSuccess: onClose })}
    >
      <p>
        {version.checkpoint_id
          ? "Its checkpoint is left to retention again. The number is not used again."
          : "Its file goes with it, unless it is still the newest of its path. The number is not used again."}
      </p>
    </Confirm>
  );
}
