import { Radio, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Dialog } from "@/components/ui/Dialog";
import type { Role, User } from "@/lib/types";
import { useCreateUser } from "../api/people";
import { ROLES } from "../people";
import { FormEnd } from "@/components/ui/FormEnd";

interface Props {
  onCreated(user: User): void;
  onClose(): void;
}

export function NewUserDialog({ onCreated, onClose }: Props) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("member");
  const create = useCreateUser();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate({ name: name.trim(), role }, { onSuccess: onCreated });
  };
  return (
    <Dialog onClose={onClose} title="New user">
      <form onSubmit={submit} className="stack">
        <TextInput
          label="Name"
          description="A name or an e-mail address. It cannot be changed later."
          value={name}
          data-autofocus
          required
          maxLength={63}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <RoleChoice roles={ROLES} role={role} onRole={setRole} label="Role" />
        <FormEnd verb="Create user" work={create} disabled={name.trim() === ""} onClose={onClose} />
      </form>
    </Dialog>
  );
}

interface RoleProps {
  label: string;
  roles: readonly (typeof ROLES)[number][];
  role: Role;
  onRole(role: Role): void;
}

export function RoleChoice({ label, roles, role, onRole }: RoleProps) {
  return (
    <Radio.Group label={label} value={role} onChange={(chosen) => onRole(chosen as Role)}>
      {roles.map(({ value, label: name, may }) => (
        <Radio key={value} mt="xs" size="xs" value={value} label={name} description={may} />
      ))}
    </Radio.Group>
  );
}
