import { infiniteQueryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { useOnce } from "@/lib/once";
import type { ModelVersion, RegisterVersion } from "@/lib/types";

const PAGE = 50;
const REFETCH_MS = 10_000;

export const modelsQuery = infiniteQueryOptions({
  queryKey: keys.models,
  queryFn: ({ signal, pageParam }) =>
    unwrap(api.GET("/api/v1/models", { params: { query: { limit: PAGE, cursor: pageParam } }, signal })),
  initialPageParam: undefined as string | undefined,
  getNextPageParam: (last) => last.next_cursor ?? undefined,
  refetchInterval: REFETCH_MS,
});

function useChange<Input, Answer>(mutationFn: (input: Input) => Promise<Answer>) {
  const client = useQueryClient();
  const refresh = () =>
    Promise.all([keys.models, keys.everyCheckpoint].map((queryKey) => client.invalidateQueries({ queryKey })));
  return useMutation({ mutationFn, onSettled: refresh });
}

export function useRegister() {
  return useChange(
    useOnce((body: RegisterVersion, key) =>
      unwrap(api.POST("/api/v1/models", { params: { header: { "Idempotency-Key": key } }, body })),
    ),
  );
}

export function useMoveAlias() {
  return useChange(
    ({ model: name, number: version, alias }: Pick<ModelVersion, "model" | "number"> & { alias: string }) =>
      unwrap(
        api.PUT("/api/v1/models/{name}/aliases/{alias}", { params: { path: { name, alias } }, body: { version } }),
      ),
  );
}

export function useRemoveAlias() {
  return useChange(({ model: name, alias }: { model: string; alias: string }) =>
    unwrap(api.DELETE("/api/v1/models/{name}/aliases/{alias}", { params: { path: { name, alias } } })),
  );
}

export function useDeleteVersion() {
  return useChange(({ model: name, number }: ModelVersion) =>
    unwrap(api.DELETE("/api/v1/models/{name}/versions/{number}", { params: { path: { name, number } } })),
  );
}

/** A link that the browser follows by itself: the file, or the weights of the checkpoint. */
export const versionUrl = ({ download, checkpoint_id: checkpoint }: ModelVersion) =>
  checkpoint ? `${download}?format=safetensors` : download;
