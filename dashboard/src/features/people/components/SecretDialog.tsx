import { Checkbox, PasswordInput, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { FormEnd } from "@/components/ui/FormEnd";
import { GrowingTextarea } from "@/components/ui/GrowingTextarea";
import type { Secret } from "@/lib/types";
import { useSetSecret } from "../api/secrets";

const LEAST_CHARACTERS = 8;

interface Props {
  /** The secret whose value is replaced; without it a new one is made. */
  replaced?: Pick<Secret, "project" | "name">;
  onClose(): void;
}

/** Sets a secret. Its value is in this dialog alone, and gone with it. */
export function SecretDialog({ replaced, onClose }: Props) {
  const [project, setProject] = useState(replaced?.project ?? "default");
  const [name, setName] = useState(replaced?.name ?? "");
  const [value, setValue] = useState("");
  const [several, setSeveral] = useState(false);
  const save = useSetSecret();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    save.mutate({ project: project.trim(), name: name.trim(), value }, { onSuccess: onClose });
  };
  const input = {
    label: "Value",
    description: "At least 8 characters. Nobody can read it back.",
    value,
    required: true,
    autoComplete: "off",
    spellCheck: false,
    "data-autofocus": replaced ? true : undefined,
  };
  const title = replaced ? `Replace ${replaced.name}` : "New secret";
  const disabled = !project.trim() || !name.trim() || value.length < LEAST_CHARACTERS;
  return (
    <Dialog onClose={onClose} title={title} size="lg">
      <form onSubmit={submit} className="stack">
        {!replaced && (
          <>
            <TextInput
              label="Project"
              description="Its jobs may name the secret."
              value={project}
              required
              maxLength={63}
              onChange={(event) => setProject(event.currentTarget.value)}
            />
            <TextInput
              label="Name"
              description="Of the variable that ranks get, such as HF_TOKEN."
              value={name}
              data-autofocus
              required
              maxLength={100}
              onChange={(event) => setName(event.currentTarget.value)}
            />
          </>
        )}
        {several ? (
          <GrowingTextarea {...input} minRows={4} onChange={(event) => setValue(event.currentTarget.value)} />
        ) : (
          <PasswordInput {...input} onChange={(event) => setValue(event.currentTarget.value)} />
        )}
        <Checkbox
          label="Several lines"
          checked={several}
          onChange={(event) => setSeveral(event.currentTarget.checked)}
        />
        <FormEnd verb="Set secret" work={save} disabled={disabled} onClose={onClose} />
      </form>
    </Dialog>
  );
}
