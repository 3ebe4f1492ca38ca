import { Button, Group, NativeSelect, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { CopyBox } from "@/components/ui/CopyBox";
import { Dialog } from "@/components/ui/Dialog";
import { useMe } from "@/lib/me";
import type { Role } from "@/lib/types";
import { useCreateKey } from "../api/people";
import { rolesUpTo } from "../people";
import { RoleChoice } from "./NewUserDialog";
import classes from "./People.module.css";
import { FormEnd } from "@/components/ui/FormEnd";

const LIFETIMES = [
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
  { value: "365", label: "1 year" },
  { value: "never", label: "Never" },
];

/** Makes an API key of the caller's own, and shows it once. */
export function NewKeyDialog({ onClose }: { onClose(): void }) {
  const create = useCreateKey();
  return (
    <Dialog onClose={onClose} title="New API key" size="lg">
      {create.data ? (
        <Made secret={create.data.key} onClose={onClose} />
      ) : (
        <KeyForm create={create} onClose={onClose} />
      )}
    </Dialog>
  );
}

function KeyForm({ create, onClose }: { create: ReturnType<typeof useCreateKey>; onClose(): void }) {
  const mine = useMe()?.role ?? "viewer";
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>(mine === "viewer" ? "viewer" : "member");
  const [days, setDays] = useState("90");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate({ name: name.trim(), role, expires_in_days: days === "never" ? null : Number(days) });
  };
  return (
    <form onSubmit={submit} className="stack">
      <TextInput
        label="Name"
        description="What uses it, such as a machine or a program."
        value={name}
        data-autofocus
        required
        maxLength={64}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <RoleChoice label="What it may do" roles={rolesUpTo(mine)} role={role} onRole={setRole} />
      <NativeSelect
        label="Expires after"
        size="xs"
        w={160}
        data={LIFETIMES}
        value={days}
        onChange={(event) => setDays(event.currentTarget.value)}
      />
      <FormEnd verb="Create key" work={create} disabled={name.trim() === ""} onClose={onClose} />
    </form>
  );
}

function Made({ secret, onClose }: { secret: string; onClose(): void }) {
  return (
    <div className="stack">
      <p className={classes.told}>Copy the key now. It is stored only as a hash and cannot be shown again.</p>
      <CopyBox value={secret} />
      <p className={classes.told}>To use it in a terminal:</p>
      <CopyBox value={`paceline login --server ${window.location.origin} --api-key ${secret}`} />
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          Done
        </Button>
      </Group>
    </div>
  );
}
