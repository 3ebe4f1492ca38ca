import { Button, Checkbox, Group, Radio, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { CopyBox } from "@/components/ui/CopyBox";
import { Dialog } from "@/components/ui/Dialog";
import { FormEnd } from "@/components/ui/FormEnd";
import { GrowingTextarea } from "@/components/ui/GrowingTextarea";
import { useCreateChannel } from "../api/notifications";
import { addressesIn, KINDS, type ChannelKind } from "../notifications";
import classes from "./Notifications.module.css";

/** Adds a channel. The secret of a webhook is shown once. */
export function NewChannelDialog({ onClose }: { onClose(): void }) {
  const create = useCreateChannel();
  const made = create.data;
  return (
    <Dialog onClose={onClose} title="New channel" size="lg">
      {made?.secret ? (
        <Made name={made.name} secret={made.secret} onClose={onClose} />
      ) : (
        <ChannelForm create={create} onClose={onClose} />
      )}
    </Dialog>
  );
}

const LABELS = { url: "Address", recipients: "E-mail addresses" };

function ChannelForm({ create, onClose }: { create: ReturnType<typeof useCreateChannel>; onClose(): void }) {
  const [name, setName] = useState("");
  const [kind, setKind] = useState<ChannelKind>("webhook");
  const [url, setUrl] = useState("");
  const [addresses, setAddresses] = useState("");
  const [forMembers, setForMembers] = useState(true);
  const recipients = addressesIn(addresses);
  const isEmail = kind === "email";
  const choose = (chosen: string) => {
    setKind(chosen as ChannelKind);
    create.reset(); // what was refused was said of the other kind
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const where = isEmail ? { url: null, recipients } : { url: url.trim(), recipients: [] };
    create.mutate(
      { name: name.trim(), kind, for_members: forMembers, ...where },
      { onSuccess: ({ secret }) => secret || onClose() },
    );
  };
  return (
    <form onSubmit={submit} className="stack">
      <TextInput
        label="Name"
        description="What rules and the history call it."
        value={name}
        data-autofocus
        required
        maxLength={63}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Radio.Group label="Kind" value={kind} onChange={choose}>
        {KINDS.map(({ value, label, hint }) => (
          <Radio key={value} mt="xs" size="xs" value={value} label={label} description={hint} />
        ))}
      </Radio.Group>
      {isEmail ? (
        <GrowingTextarea
          label="E-mail addresses"
          description="Up to 20, between commas or on lines of their own."
          value={addresses}
          required
          minRows={2}
          onChange={(event) => setAddresses(event.currentTarget.value)}
        />
      ) : (
        <TextInput
          label="Address"
          description="It begins with https:// and is never shown again, since it may hold a secret."
          value={url}
          required
          maxLength={2000}
          autoComplete="off"
          onChange={(event) => setUrl(event.currentTarget.value)}
        />
      )}
      <Checkbox
        label="Members may make rules that send to it"
        checked={forMembers}
        onChange={(event) => setForMembers(event.currentTarget.checked)}
      />
      <FormEnd
        verb="Create channel"
        work={create}
        labels={LABELS}
        disabled={name.trim() === "" || (isEmail ? recipients.length === 0 : url.trim() === "")}
        onClose={onClose}
      />
    </form>
  );
}

function Made({ name, secret, onClose }: { name: string; secret: string; onClose(): void }) {
  return (
    <div className="stack">
      <p className={classes.told}>
        The requests of <strong>{name}</strong> are signed with this secret. Copy it now: it is shown only here. How to
        verify a signature stands in the{" "}
        <a href="/docs/notifications.html#verify-a-signature" target="_blank" rel="noopener">
          documentation
        </a>
        .
      </p>
      <CopyBox value={secret} />
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          Done
        </Button>
      </Group>
    </div>
  );
}
