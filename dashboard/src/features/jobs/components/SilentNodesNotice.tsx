import { IconPlugConnectedX } from "@tabler/icons-react";
import { Notice } from "@/components/ui/Notice";
import type { Job } from "@/lib/types";

/** Nodes of the job that have not been heard of for some time, before they are given up as lost. */
export function SilentNodesNotice({ job }: { job: Job }) {
  const nodes = job.silent_nodes ?? [];
  if (nodes.length === 0) return null;
  return (
    <Notice
      icon={IconPlugConnectedX}
      label="Silent nodes"
      title={nodes.length === 1 ? "A node of the job is silent" : `${nodes.length} nodes of the job are silent`}
      tone="warn"
    >
      {nodes.map((node) => (
        <div key={node.node_id}>{node.message}</div>
      ))}
    </Notice>
  );
}
