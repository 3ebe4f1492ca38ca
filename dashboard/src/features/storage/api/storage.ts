import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

// Sizes and free disk have no event of their own; a disk that becomes low has.
const INTERVAL_MS = 30_000;

export const storageQuery = queryOptions({
  queryKey: keys.storage,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/cluster/storage", { signal })),
  refetchInterval: INTERVAL_MS,
});

export interface DataDeletion {
  jobId: string;
  checkpoints: boolean;
}

/** Of what an ended job has recorded; it goes on in the background. */
export function useDataDeletion() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ jobId, checkpoints }: DataDeletion) =>
      unwrap(
        api.DELETE("/api/v1/training/jobs/{job_id}/data", {
          params: { path: { job_id: jobId }, query: { checkpoints } },
        }),
      ),
    onSettled: () => Promise.all([keys.storage, keys.jobs].map((queryKey) => client.invalidateQueries({ queryKey }))),
  });
}
