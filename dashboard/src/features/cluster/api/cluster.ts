import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, newIdempotencyKey, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Node, NodeInvitation } from "@/lib/types";

// Readings arrive with each heartbeat and have no event of their own.
const READINGS_INTERVAL_MS = 3_000;
const PAGE = 200;

export const nodesQuery = queryOptions({
  queryKey: keys.nodes,
  queryFn: async ({ signal }) => {
    const items: Node[] = [];
    let cursor: string | undefined;
    do {
      const page = await unwrap(
        api.GET("/api/v1/cluster/nodes", { params: { query: { limit: PAGE, cursor } }, signal }),
      );
      items.push(...page.items);
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
    return items;
  },
  refetchInterval: READINGS_INTERVAL_MS,
});

export const summaryQuery = queryOptions({
  queryKey: keys.summary,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/metrics/cluster/summary", { signal })),
  refetchInterval: READINGS_INTERVAL_MS,
});

export type NodeChange = "cordon" | "uncordon" | "drain" | "remove";

function send(change: NodeChange, nodeId: string) {
  const path = { node_id: nodeId };
  switch (change) {
    case "cordon":
      return unwrap(api.PUT("/api/v1/cluster/nodes/{node_id}/cordon", { params: { path } }));
    case "uncordon":
      return unwrap(api.PUT("/api/v1/cluster/nodes/{node_id}/uncordon", { params: { path } }));
    case "drain":
      return unwrap(api.DELETE("/api/v1/cluster/nodes/{node_id}", { params: { path } }));
    case "remove":
      return unwrap(api.DELETE("/api/v1/cluster/nodes/{node_id}", { params: { path, query: { force: true } } }));
  }
}

export function useNodeChange(nodeId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (change: NodeChange) => send(change, nodeId),
    onSettled: () => client.invalidateQueries({ queryKey: keys.cluster }),
  });
}

export function useInvitation() {
  return useMutation({
    mutationFn: async () =>
      (await unwrap(
        api.POST("/api/v1/cluster/nodes", {
          params: { header: { "Idempotency-Key": newIdempotencyKey() } },
          body: { provisioner: "manual", expires_in_seconds: 3600, labels: {} },
        }),
      )) as NodeInvitation,
  });
}
