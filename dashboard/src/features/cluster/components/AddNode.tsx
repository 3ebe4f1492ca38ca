import { SegmentedControl } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import type { Node } from "@/lib/types";
import { JoinCommand } from "./JoinCommand";
import { PoolLaunch } from "./PoolLaunch";
import { SshLaunch } from "./SshLaunch";

const WAYS = [
  { value: "command", label: "Command" },
  { value: "pool", label: "Pool" },
  { value: "ssh", label: "SSH host" },
];

/** The ways to a new node: a command to run there, a pool that has a provider, or a host that the coordinator signs in on. */
export function AddNode({ known, onClose }: { known: readonly Node[]; onClose(): void }) {
  const [way, setWay] = useState("command");
  return (
    <Dialog onClose={onClose} title="Add a node" size="lg">
      <div className="stack">
        <SegmentedControl aria-label="How to add a node" data={WAYS} value={way} onChange={setWay} />
        {way === "command" && <JoinCommand known={known} />}
        {way === "pool" && <PoolLaunch onDone={onClose} />}
        {way === "ssh" && <SshLaunch onDone={onClose} />}
      </div>
    </Dialog>
  );
}
