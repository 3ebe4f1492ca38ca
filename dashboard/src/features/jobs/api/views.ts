import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";

export const savedViewsQuery = queryOptions({
  queryKey: keys.savedViews,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/training/saved-views", { signal })),
});

export function useSaveView() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ name, query }: { name: string; query: string }) =>
      unwrap(api.PUT("/api/v1/training/saved-views/{name}", { params: { path: { name } }, body: { query } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.savedViews }),
  });
}

export function useDeleteView() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (name: string) =>
      unwrap(api.DELETE("/api/v1/training/saved-views/{name}", { params: { path: { name } } })),
    onSettled: () => client.invalidateQueries({ queryKey: keys.savedViews }),
  });
}
