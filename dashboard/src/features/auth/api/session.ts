import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, setCsrfToken, unwrap } from "@/lib/client";
import { ApiError } from "@/lib/errors";
import { keys } from "@/lib/keys";
import type { Me } from "@/lib/types";

function remember(me: Me): Me {
  setCsrfToken(me.csrf_token);
  return me;
}

/** Who is signed in; null without a session. */
export const meQuery = queryOptions({
  queryKey: keys.me,
  queryFn: async ({ signal }): Promise<Me | null> => {
    try {
      return remember(await unwrap(api.GET("/api/v1/auth/me", { signal })));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: 60_000,
});

export async function login(token: string): Promise<Me> {
  return remember(await unwrap(api.POST("/api/v1/auth/login", { body: { token } })));
}

export function useLogout() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/logout")),
    onSettled: () => {
      setCsrfToken(null);
      client.clear();
      client.setQueryData(keys.me, null);
    },
  });
}
