import { Button, TextInput } from "@mantine/core";
import { useState } from "react";
import { DocsLink } from "@/components/ui/DocsLink";
import { NumberField } from "@/components/ui/NumberField";
import { asApiError } from "@/lib/errors";
import { wholeNumberProblem } from "@/lib/numbers";
import type { NodeRequest } from "@/lib/types";
import { useLaunch } from "../api/launches";
import classes from "./Cluster.module.css";

/** The API's own limit. */
const MOST_SLOTS = 64;

interface Fields {
  host: string;
  hostKey: string;
  keyFile: string;
  slots: number | string | undefined;
}

/** Installs Paceline on a host that the coordinator can sign in on, and starts its agent. */
export function SshLaunch({ onDone }: { onDone(): void }) {
  const [fields, setFields] = useState<Fields>({ host: "", hostKey: "", keyFile: "", slots: undefined });
  const problem = wholeNumberProblem(fields.slots, 1, MOST_SLOTS);
  const launch = useLaunch();
  const text = (name: "host" | "hostKey" | "keyFile") => ({
    value: fields[name],
    onChange: (event: { currentTarget: { value: string } }) => {
      const { value } = event.currentTarget;
      setFields((before) => ({ ...before, [name]: value }));
    },
  });
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        if (problem === null) launch.mutate(request(fields), { onSuccess: onDone });
      }}
    >
      <p className={classes.step}>
        The coordinator signs in there with its own keys, installs Paceline and starts the agent.{" "}
        <DocsLink page="nodes.html#hosts-with-ssh">Hosts with SSH</DocsLink>
      </p>
      <TextInput label="Host" placeholder="ada@gpu1.lab" required {...text("host")} />
      <TextInput
        label="Host key"
        placeholder="SHA256:..."
        description="Its fingerprint, where the coordinator's known_hosts does not have the host"
        {...text("hostKey")}
      />
      <TextInput
        label="Key file"
        placeholder="~/.ssh/id_ed25519"
        description="On the coordinator's machine. Default: its SSH agent and the keys in its ~/.ssh"
        {...text("keyFile")}
      />
      <NumberField
        label="Slots"
        value={fields.slots}
        error={problem}
        onValue={(slots) => setFields((before) => ({ ...before, slots }))}
        description="Default: what the machine has"
      />
      {launch.error && (
        <p className={classes.actionError} role="alert">
          {asApiError(launch.error).message}
        </p>
      )}
      <Button type="submit" loading={launch.isPending} disabled={problem !== null}>
        Install and start
      </Button>
    </form>
  );
}

const HOST = /^(?:(?<user>.+)@)?(?:\[(?<address>[^\]]+)\]|(?<host>[^:]+))(?::(?<port>\d+))?$/;

/** A host is written as user@host:port; the coordinator refuses what is none. */
function request({ host, hostKey, keyFile, slots }: Fields): Partial<NodeRequest> {
  const parts = HOST.exec(host.trim())?.groups;
  const place = {
    host: parts?.address ?? parts?.host ?? host.trim(),
    ...(parts?.user && { user: parts.user }),
    ...(parts?.port && { port: Number(parts.port) }),
    ...(hostKey.trim() && { host_key: hostKey.trim() }),
  };
  const provider = { type: "ssh", hosts: [place], ...(keyFile.trim() && { key_file: keyFile.trim() }) };
  return { provider: provider as NodeRequest["provider"], ...(slots !== undefined && { slots: Number(slots) }) };
}
