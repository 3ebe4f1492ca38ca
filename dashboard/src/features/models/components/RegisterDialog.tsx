import { Button, Group, Text, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorText } from "@/components/ui/ErrorText";
import { GrowingTextarea } from "@/components/ui/GrowingTextarea";
import { useRegister } from "../api/models";
import classes from "./Models.module.css";

/** What a version is to be made of. */
export interface Source {
  checkpoint?: string;
  job?: string;
  path?: string;
}

interface Props {
  source: Source;
  onClose(): void;
}

/** Registers a checkpoint, or a file that a job has left, as the next version of a model. */
export function RegisterDialog({ source, onClose }: Props) {
  const [name, setName] = useState("");
  const [alias, setAlias] = useState("");
  const [notes, setNotes] = useState("");
  const register = useRegister();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const from = source.checkpoint
      ? { checkpoint_id: source.checkpoint }
      : { job_id: source.job ?? null, path: source.path ?? null };
    register.mutate({ name, notes, aliases: alias ? [alias] : [], ...from }, { onSuccess: onClose });
  };
  return (
    <Dialog onClose={onClose} title="Register a model version">
      <form onSubmit={submit} className="stack">
        <Text size="sm" className={classes.long}>
          {source.checkpoint ? `Of checkpoint ${source.checkpoint}.` : `Of the file ${source.path}.`} It is kept for as
          long as the version exists.
        </Text>
        <TextInput
          label="Model"
          description="A new name makes a new model"
          value={name}
          required
          onChange={(event) => setName(event.currentTarget.value)}
          data-autofocus
        />
        <TextInput
          label="Alias"
          description="Such as production: it moves here from any other version"
          value={alias}
          onChange={(event) => setAlias(event.currentTarget.value)}
        />
        <GrowingTextarea
          label="Notes"
          value={notes}
          minRows={2}
          onChange={(event) => setNotes(event.currentTarget.value)}
        />
        {register.error && (
          <Text size="sm" role="alert" c="var(--bad-text)">
            <ErrorText error={register.error} />
          </Text>
        )}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={register.isPending} disabled={name.trim() === ""}>
            Register
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
