import { MutationCache, QueryCache, QueryClient, type Query, type QueryFilters } from "@tanstack/react-query";
import { ApiError, asApiError } from "./errors";
import { keys } from "./keys";

const RETRIES = 2;

/** Only what may pass by itself is tried again: no answer, too many requests, or the server's own fault. */
export function worthRetrying(count: number, error: unknown): boolean {
  const { status } = asApiError(error);
  return count < RETRIES && (status === 0 || status === 429 || status >= 500);
}

export function createQueryClient(): QueryClient {
  // The session has ended, or another window of the browser has begun one, with another token.
  const noticeSession = (error: unknown) => {
    if (error instanceof ApiError && (error.status === 401 || error.code === "csrf"))
      void client.invalidateQueries({ queryKey: keys.me });
  };
  const client: QueryClient = new QueryClient({
    queryCache: new QueryCache({
      onError: (error, query) => {
        if (query.queryKey[0] !== keys.me[0]) noticeSession(error);
      },
    }),
    mutationCache: new MutationCache({ onError: noticeSession }),
    defaultOptions: {
      queries: { retry: worthRetrying, staleTime: 1_000, refetchOnWindowFocus: true, networkMode: "always" },
      mutations: { retry: false, networkMode: "always" },
    },
  });
  return client;
}

/** Fetches again whatever matches. A fetch under way may have been answered before the news: it is let finish, then done once more. */
export function refresh(client: QueryClient, filters: QueryFilters): void {
  for (const query of client.getQueryCache().findAll(filters)) {
    if (query.state.fetchStatus === "idle") void again(client, query);
    else void onceMore(client, query);
  }
}

const awaited = new WeakSet<Query>();

async function onceMore(client: QueryClient, query: Query): Promise<void> {
  if (awaited.has(query)) return;
  awaited.add(query);
  await query.promise?.catch(() => undefined); // its views show the error
  awaited.delete(query);
  await again(client, query);
}

function again(client: QueryClient, { queryKey }: Query): Promise<void> {
  return client.invalidateQueries({ queryKey, exact: true });
}
