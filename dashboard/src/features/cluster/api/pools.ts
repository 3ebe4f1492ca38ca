import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import type { components } from "@/lib/api.generated";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Schema } from "@/lib/spec/schema";
import type { NodePool } from "@/lib/types";

// Node-hours, and why nothing is launched, have no event of their own.
const POOLS_INTERVAL_MS = 3_000;
const PAGE = 200;

export const poolsQuery = queryOptions({
  queryKey: keys.pools,
  queryFn: async ({ signal }) => {
    const items: NodePool[] = [];
    let cursor: string | undefined;
    do {
      const page = await unwrap(
        api.GET("/api/v1/cluster/pools", { params: { query: { limit: PAGE, cursor } }, signal }),
      );
      items.push(...page.items);
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
    return items;
  },
  refetchInterval: POOLS_INTERVAL_MS,
});

export const poolSchemaQuery = queryOptions({
  queryKey: keys.poolSchema,
  queryFn: async ({ signal }) => (await unwrap(api.GET("/api/v1/cluster/pool-schema", { signal }))) as Schema,
  staleTime: Infinity,
});

/** Creates the pool `name`, or, where it is not to be new, replaces it by a document that has this name too. */
export function useApplyPool({ isNew }: { isNew: boolean }) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ name, document }: { name: string; document: unknown }) =>
      unwrap(
        api.PUT("/api/v1/cluster/pools/{name}", {
          params: { path: { name }, header: isNew ? { "If-None-Match": "*" } : {} },
          body: document as components["schemas"]["PoolSpec"],
        }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: keys.cluster }),
  });
}

export function useDeletePool(name: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ drain }: { drain: boolean }) =>
      unwrap(api.DELETE("/api/v1/cluster/pools/{name}", { params: { path: { name }, query: { drain } } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.cluster }),
  });
}
