import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, setCsrfToken, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { remember } from "@/lib/me";
import type { Me } from "@/lib/types";

/** What the login page offers beside links and keys. */
export const waysQuery = queryOptions({
  queryKey: keys.ways,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/auth/ways", { signal })),
});

/** Where a browser begins to sign in by the OpenID provider. */
export const providerUrl = (next: string) => `/api/v1/auth/oidc/start?next=${encodeURIComponent(next)}`;

/** Signs in with the token of a login link, or with an API key. */
export async function login(token: string): Promise<Me> {
  return remember(await unwrap(api.POST("/api/v1/auth/login", { body: { token } })));
}

/** Signs out. The page is left before it learns that the session is gone, which it would take for one that ended. */
export function useLogout(leave: () => Promise<void>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/logout")),
    onSettled: async () => {
      await leave();
      setCsrfToken(null);
      client.clear();
      client.setQueryData(keys.me, null);
    },
  });
}
