import { infiniteQueryOptions, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { useOnce } from "@/lib/once";
import type { ApiKey, BrowserSession, Role, User } from "@/lib/types";

const PAGE = 200;

interface PageOf<Item> {
  items: Item[];
  next_cursor?: string | null;
}

/** Every item of a list, by its cursors. */
async function all<Item>(ask: (query: { limit: number; cursor?: string }) => Promise<PageOf<Item>>): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | undefined;
  do {
    const page = await ask({ limit: PAGE, cursor });
    items.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor);
  return items;
}

export const usersQuery = queryOptions({
  queryKey: keys.users,
  queryFn: ({ signal }): Promise<User[]> =>
    all((query) => unwrap(api.GET("/api/v1/users", { params: { query }, signal }))),
});

export const apiKeysQuery = queryOptions({
  queryKey: keys.apiKeys,
  queryFn: ({ signal }): Promise<ApiKey[]> =>
    all((query) => unwrap(api.GET("/api/v1/keys", { params: { query }, signal }))),
});

export const sessionsQuery = queryOptions({
  queryKey: keys.sessions,
  queryFn: ({ signal }): Promise<BrowserSession[]> =>
    all((query) => unwrap(api.GET("/api/v1/sessions", { params: { query }, signal }))),
});

export interface AuditFilter {
  user?: string;
  action?: string;
}

const AUDIT_PAGE = 50;

export const auditQuery = (filter: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: keys.audit(filter),
    initialPageParam: undefined as string | undefined,
    queryFn: ({ signal, pageParam: cursor }) =>
      unwrap(api.GET("/api/v1/audit", { params: { query: { ...filter, cursor, limit: AUDIT_PAGE } }, signal })),
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });

/** A change of people, after which everything about them is read again. */
function usePeopleChange<Input, Output>(mutationFn: (input: Input) => Promise<Output>) {
  const client = useQueryClient();
  return useMutation({ mutationFn, onSettled: () => client.invalidateQueries({ queryKey: keys.people }) });
}

export interface NewUser {
  name: string;
  role: Role;
}

export const useCreateUser = () =>
  usePeopleChange(
    useOnce((body: NewUser, key) =>
      unwrap(api.POST("/api/v1/users", { params: { header: { "Idempotency-Key": key } }, body })),
    ),
  );

export const useUserChange = (userId: string) =>
  usePeopleChange((body: { role?: Role; disabled?: boolean }) =>
    unwrap(api.PATCH("/api/v1/users/{user_id}", { params: { path: { user_id: userId } }, body })),
  );

export const useLoginLink = () =>
  usePeopleChange((userId: string) =>
    unwrap(api.POST("/api/v1/users/{user_id}/login-link", { params: { path: { user_id: userId } } })),
  );

export interface NewKey {
  name: string;
  role: Role;
  expires_in_days: number | null;
}

export const useCreateKey = () =>
  usePeopleChange(
    useOnce((body: NewKey, key) =>
      unwrap(api.POST("/api/v1/keys", { params: { header: { "Idempotency-Key": key } }, body })),
    ),
  );

export const useRevokeKey = () =>
  usePeopleChange((keyId: string) =>
    unwrap(api.DELETE("/api/v1/keys/{key_id}", { params: { path: { key_id: keyId } } })),
  );

export const useEndSession = () =>
  usePeopleChange((sessionId: string) =>
    unwrap(api.DELETE("/api/v1/sessions/{session_id}", { params: { path: { session_id: sessionId } } })),
  );
