import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { useOnce } from "@/lib/once";
import type { NodeLaunches, NodeRequest } from "@/lib/types";

const LAUNCHES_INTERVAL_MS = 3_000;
const MOST = 200;

/** Nodes that are to come, are being ended, or could not be started. */
export const launchesQuery = queryOptions({
  queryKey: keys.launches,
  queryFn: async ({ signal }) =>
    (await unwrap(api.GET("/api/v1/cluster/launches", { params: { query: { limit: MOST } }, signal }))).items,
  refetchInterval: LAUNCHES_INTERVAL_MS,
});

export function useLaunch() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: useOnce(
      async (body: Partial<NodeRequest>, key) =>
        (await unwrap(
          api.POST("/api/v1/cluster/nodes", {
            params: { header: { "Idempotency-Key": key } },
            body: body as NodeRequest,
          }),
        )) as NodeLaunches,
    ),
    onSettled: () => client.invalidateQueries({ queryKey: keys.cluster }),
  });
}

export function useCancelLaunch(launchId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () =>
      unwrap(api.DELETE("/api/v1/cluster/launches/{launch_id}", { params: { path: { launch_id: launchId } } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.cluster }),
  });
}
