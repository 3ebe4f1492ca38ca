import { ActionIcon, Menu } from "@mantine/core";
import { IconDots } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { plural } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { Node } from "@/lib/types";
import { useNodeChange, type NodeChange } from "../api/cluster";
import classes from "./Cluster.module.css";

type Destructive = Extract<NodeChange, "drain" | "remove">;

const VERBS: Record<Destructive, string> = { drain: "Drain and remove", remove: "Remove now" };

export function NodeActions({ node }: { node: Node }) {
  const change = useNodeChange(node.id);
  const [confirming, setConfirming] = useState<Destructive | null>(null);
  const ask = (what: Destructive) => {
    change.reset();
    setConfirming(what);
  };
  const button = (
    <ActionIcon
      variant="subtle"
      color="gray"
      size="sm"
      aria-label={`Actions for ${node.name}`}
      loading={change.isPending}
    >
      <IconDots size={16} />
    </ActionIcon>
  );
  const refused = useRoleRefusal("admin");
  if (refused !== null) return <Guarded refused={refused}>{button}</Guarded>;
  return (
    <>
      {change.error && !confirming && (
        <span role="alert" className={classes.actionError}>
          <ErrorText error={change.error} />
        </span>
      )}
      <Menu position="bottom-end" withinPortal>
        <Menu.Target>{button}</Menu.Target>
        <Menu.Dropdown>
          {node.state === "ready" && (
            <Menu.Item onClick={() => change.mutate("cordon")}>Cordon (stop scheduling new jobs)</Menu.Item>
          )}
          {(node.state === "cordoned" || node.state === "draining") && (
            <Menu.Item onClick={() => change.mutate("uncordon")}>Uncordon (schedule new jobs again)</Menu.Item>
          )}
          {node.state !== "draining" && <Menu.Item onClick={() => ask("drain")}>{VERBS.drain}</Menu.Item>}
          <Menu.Item color="var(--bad-text)" onClick={() => ask("remove")}>
            {VERBS.remove}
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {confirming && (
        <Confirm
          opened
          title={`${VERBS[confirming]}: ${node.name}?`}
          verb={VERBS[confirming]}
          busy={change.isPending}
          error={change.error}
          onClose={() => setConfirming(null)}
          onConfirm={() => change.mutate(confirming, { onSuccess: () => setConfirming(null) })}
        >
          {consequence(node, confirming)}
        </Confirm>
      )}
    </>
  );
}

function consequence(node: Node, change: Destructive): string {
  const jobs = [...new Set(node.slots.flatMap((slot) => slot.job_name ?? []))];
  if (jobs.length === 0)
    return `No job runs on ${node.name}. Its credential is revoked. To add it back, use a new join token.`;
  const named = `${plural(jobs.length, "job")} (${jobs.join(", ")})`;
  return change === "drain"
    ? `No new jobs are scheduled on ${node.name}. It leaves once these jobs have ended or moved: ${jobs.join(", ")}.`
    : `${named} ${jobs.length === 1 ? "loses its" : "lose their"} ranks on this node at once. An elastic job continues on its other ranks; any other job restarts from its newest checkpoint.`;
}
