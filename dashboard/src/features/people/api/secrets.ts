import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Secret } from "@/lib/types";

export const secretsQuery = queryOptions({
  queryKey: keys.secrets,
  queryFn: ({ signal }): Promise<Secret[]> => unwrap(api.GET("/api/v1/secrets", { signal })),
});

export interface NewSecret {
  project: string;
  name: string;
  value: string;
}

export function useSetSecret() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ value, ...path }: NewSecret) =>
      unwrap(api.PUT("/api/v1/secrets/{project}/{name}", { params: { path }, body: { value } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.people }),
    gcTime: 0, // the value is kept no longer than the dialog
  });
}

export function useDeleteSecret() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ project, name }: Secret) =>
      unwrap(api.DELETE("/api/v1/secrets/{project}/{name}", { params: { path: { project, name } } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.people }),
  });
}
