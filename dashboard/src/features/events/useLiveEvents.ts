import { useQueryClient, type QueryClient, type QueryKey } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { keys } from "@/lib/keys";
import { refresh } from "@/lib/query";
import type { StreamStatus } from "@/lib/stream";
import type { Event } from "@/lib/types";
import { useStream } from "@/lib/useStream";
import { EVENTS_STREAM_PATH } from "./api/events";

const COALESCE_MS = 150;

/** What no event tells of. A stream that begins has missed nothing of it; one that comes back may be another coordinator's. */
const UNTOLD = new Set<unknown>(
  [keys.specSchema, keys.poolSchema, keys.experimentSchema, keys.plan(""), keys.experimentPlan("")].map(
    ([noun]) => noun,
  ),
);

const PEOPLE = /^(auth|user|key|session)\./;

/** What an event makes stale. */
export function staleAfter(event: Event): QueryKey[] {
  const stale: QueryKey[] = [];
  if (event.job_id)
    stale.push(
      keys.jobs,
      keys.events(event.job_id),
      keys.incidents(event.job_id),
      keys.goodput(event.job_id),
      keys.summary,
    );
  if (event.job_id && event.type.startsWith("checkpoint")) stale.push(keys.checkpoints(event.job_id));
  if (event.node_id || event.type.startsWith("node") || event.type === "job.state") stale.push(keys.cluster);
  if (event.type.startsWith("experiment") || event.type === "job.state") stale.push(keys.experiments);
  if (event.type.startsWith("cluster.disk") || event.type.startsWith("job.data")) stale.push(keys.storage);
  if (PEOPLE.test(event.type)) stale.push(keys.people);
  // A sign-in may be one of another window of this browser, whose session this page then has as well.
  if (event.type === "user.updated" || event.type === "auth.signed_in") stale.push(keys.me);
  return stale;
}

/** Keeps every view of the application fresh: one stream, whose events invalidate queries, many events at once. */
export function useLiveEvents(): StreamStatus {
  const client = useQueryClient();
  const begun = useRef(false);
  const stale = useRef(new Map<string, QueryKey>());
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useStream({
    path: EVENTS_STREAM_PATH,
    after: null,
    onFrame: (frame) => {
      for (const key of staleAfter(frame.data as unknown as Event)) stale.current.set(JSON.stringify(key), key);
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        flush(client, stale.current);
      }, COALESCE_MS);
    },
    onMissed: () => {
      const first = !begun.current;
      begun.current = true;
      refresh(client, {
        predicate: ({ queryKey: [noun] }) => noun !== "metrics" && noun !== "logs" && !(first && UNTOLD.has(noun)),
      });
    },
  });
}

function flush(client: QueryClient, stale: Map<string, QueryKey>): void {
  const all = [...stale.values()];
  stale.clear();
  for (const queryKey of all) refresh(client, { queryKey });
}
