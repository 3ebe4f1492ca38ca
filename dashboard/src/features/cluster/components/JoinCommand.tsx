import { Loader } from "@mantine/core";
import { IconAlertTriangle, IconCircleCheck } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { CopyBox } from "@/components/ui/CopyBox";
import { ErrorState, LoadingState } from "@/components/ui/Panel";
import { clock, plural } from "@/lib/format";
import type { Node } from "@/lib/types";
import { useInvitation } from "../api/cluster";
import classes from "./Cluster.module.css";

/** One command with a one-time token, and a live answer when the machine has joined. */
export function JoinCommand({ known }: { known: readonly Node[] }) {
  const { mutate, data, error } = useInvitation();
  const [before] = useState(() => new Set(known.map((node) => node.id)));
  useEffect(() => mutate(), [mutate]);
  const joined = known.find((node) => !before.has(node.id));
  if (error) return <ErrorState error={error} what="a join token" onRetry={mutate} />;
  if (!data) return <LoadingState rows={2} what="a join token" />;
  return (
    <div className="stack">
      {data.warning && (
        <p className={classes.step} role="alert">
          <IconAlertTriangle size={16} color="var(--warn)" aria-hidden />{" "}
          <strong>No other machine can use this command.</strong> {data.warning}
        </p>
      )}
      <p className={classes.step}>
        Run this on the {data.warning ? "coordinator's own" : "new"} machine. This single-use token is shown only once
        and expires at {clock(data.expires_at)}.
      </p>
      <CopyBox value={data.command} />
      <p className={classes.step} role="status" aria-live="polite">
        <Progress node={joined} />
      </p>
    </div>
  );
}

/** A node is listed as soon as its token is used; its slots follow once the agent has warmed up. */
function Progress({ node }: { node: Node | undefined }) {
  if (!node)
    return (
      <>
        <Loader size={14} aria-hidden /> Waiting for the node to join
      </>
    );
  if (node.slots.length === 0)
    return (
      <>
        <Loader size={14} aria-hidden /> <strong>{node.name}</strong> is getting ready
      </>
    );
  return (
    <>
      <IconCircleCheck size={16} color="var(--good)" aria-hidden /> <strong>{node.name}</strong> joined with{" "}
      {plural(node.slots.length, "slot")}.
    </>
  );
}
