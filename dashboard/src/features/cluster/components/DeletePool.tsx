import { Checkbox } from "@mantine/core";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { plural } from "@/lib/format";
import type { NodePool } from "@/lib/types";
import { useDeletePool } from "../api/pools";

export function DeletePool({ pool, onClose }: { pool: NodePool; onClose(): void }) {
  const [drain, setDrain] = useState(false);
  const work = useDeletePool(pool.name);
  const nodes = pool.nodes + pool.coming;
  return (
    <Confirm
      opened
      title={`Delete the pool ${pool.name}?`}
      verb="Delete pool"
      busy={work.isPending}
      error={work.error}
      onClose={onClose}
      onConfirm={() => work.mutate({ drain }, { onSuccess: onClose })}
    >
      {nodes === 0
        ? "It has no nodes. Its settings and its count of node-hours are deleted."
        : `It has ${plural(nodes, "node")}, so it can only be deleted with them.`}
      {nodes > 0 && (
        <Checkbox
          mt="sm"
          label="Drain and end its nodes"
          description="Elastic jobs go on with fewer ranks, others save and wait."
          checked={drain}
          onChange={(event) => setDrain(event.currentTarget.checked)}
        />
      )}
    </Confirm>
  );
}
