import { infiniteQueryOptions, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { api, newIdempotencyKey, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { useOnce } from "@/lib/once";
import type { NewChannel, NewRule } from "@/lib/types";

const PAGE = 50;
const ASK_AGAIN_MS = 3_000;
const DOUBLE_CLICK_MS = 2_000;

export const channelsQuery = queryOptions({
  queryKey: keys.channels,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/notifications/channels", { signal })),
});

export const rulesQuery = queryOptions({
  queryKey: keys.rules,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/notifications/rules", { signal })),
});

/** The history, the newest first; asked again while something is still to be sent. */
export const deliveriesQuery = (channel?: string) =>
  infiniteQueryOptions({
    queryKey: keys.deliveries(channel),
    initialPageParam: undefined as string | undefined,
    queryFn: ({ signal, pageParam: cursor }) =>
      unwrap(
        api.GET("/api/v1/notifications/deliveries", { params: { query: { channel, cursor, limit: PAGE } }, signal }),
      ),
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: ({ state }) =>
      state.data?.pages.some(({ items }) => items.some((each) => each.state === "pending")) && ASK_AGAIN_MS,
  });

/** A change, after which everything about notifications is read again. */
function useChange<Input, Output>(mutationFn: (input: Input) => Promise<Output>) {
  const client = useQueryClient();
  return useMutation({ mutationFn, onSettled: () => client.invalidateQueries({ queryKey: keys.notifications }) });
}

const under = (key: string) => ({ header: { "Idempotency-Key": key } });

export const useCreateChannel = () =>
  useChange(
    useOnce((body: NewChannel, key) =>
      unwrap(api.POST("/api/v1/notifications/channels", { params: under(key), body })),
    ),
  );

export const useSwitchChannel = (id: string) =>
  useChange((enabled: boolean) =>
    unwrap(
      api.PATCH("/api/v1/notifications/channels/{channel_id}", {
        params: { path: { channel_id: id } },
        body: { enabled },
      }),
    ),
  );

export const useDeleteChannel = () =>
  useChange((id: string) =>
    unwrap(api.DELETE("/api/v1/notifications/channels/{channel_id}", { params: { path: { channel_id: id } } })),
  );

export const useTestChannel = () =>
  useChange((id: string) =>
    unwrap(api.POST("/api/v1/notifications/channels/{channel_id}/test", { params: { path: { channel_id: id } } })),
  );

/** Changes the rule with this id, or makes one. */
export const useSaveRule = (id?: string) =>
  useChange(
    useOnce((body: NewRule, key) =>
      unwrap(
        id === undefined
          ? api.POST("/api/v1/notifications/rules", { params: under(key), body })
          : api.PUT("/api/v1/notifications/rules/{rule_id}", { params: { path: { rule_id: id } }, body }),
      ),
    ),
  );

export const useDeleteRule = () =>
  useChange((id: string) =>
    unwrap(api.DELETE("/api/v1/notifications/rules/{rule_id}", { params: { path: { rule_id: id } } })),
  );

/** A second click on one delivery is the first one once more. */
export function useSendAgain() {
  const last = useRef({ id: "", at: 0, key: "" });
  return useChange((id: string) => {
    if (last.current.id !== id || Date.now() - last.current.at > DOUBLE_CLICK_MS)
      last.current = { id, at: Date.now(), key: newIdempotencyKey() };
    return unwrap(
      api.POST("/api/v1/notifications/deliveries/{delivery_id}/send-again", {
        params: { path: { delivery_id: id }, ...under(last.current.key) },
      }),
    );
  });
}
