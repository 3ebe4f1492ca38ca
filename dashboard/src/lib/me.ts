import { queryOptions, useQuery } from "@tanstack/react-query";
import { api, setCsrfToken, unwrap } from "./client";
import { ApiError } from "./errors";
import { keys } from "./keys";
import type { Me } from "./types";

/** Keeps the token that unsafe requests need. */
export function remember(me: Me): Me {
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

export function useMe(): Me | null | undefined {
  return useQuery(meQuery).data;
}
