import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { ApiError } from "@/lib/errors";
import { PROGRESS_INTERVAL_MS } from "@/lib/jobQuery";
import { keys } from "@/lib/keys";
import { serverNow } from "@/lib/serverTime";
import { labelsOf } from "../labels";
import { timeOf, type JobFilter } from "../view";

export const PAGE_SIZE = 50;

const FACETS_STALE_MS = 30_000;

export function jobListQuery(filter: JobFilter) {
  const {
    status,
    project,
    user,
    model,
    label,
    q,
    since,
    experiment,
    trials,
    archived,
    sort = "-created_at",
    cursor,
  } = filter;
  const labels = Object.entries(labelsOf(label ?? [])).map(([name, value]) => [`label.${name}`, value]);
  const query = {
    limit: PAGE_SIZE,
    count: true,
    sort,
    q: q || undefined,
    experiment,
    trials,
    archived,
    cursor,
    status: status?.join(",") || undefined,
    project: project?.join(",") || undefined,
    user: user?.join(",") || undefined,
    model: model?.join(",") || undefined,
    ...(Object.fromEntries(labels) as Record<string, string>),
  };
  return queryOptions({
    queryKey: keys.jobList({ ...query, since }),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/training/jobs", {
          params: { query: { ...query, created_after: timeOf(since, serverNow()) } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: PROGRESS_INTERVAL_MS,
  });
}

/** Crockford's base 32, as all ids are written. */
const ID = /^[0-9A-HJKMNP-TV-Z]{26}$/;
const MOST_LISTED = 200;

export interface NamedJob {
  id: string;
  /** How many jobs have the name that was given; 1 where an id was given. */
  namesakes: number;
}

/** The job that an id or a name stands for; of several jobs with one name, the newest that is not archived. */
export function jobIdQuery(reference: string) {
  const query = { name: reference, archived: "include", limit: MOST_LISTED, sort: "-created_at" } as const;
  return queryOptions({
    queryKey: keys.jobId(reference),
    queryFn: async ({ signal }): Promise<NamedJob> => {
      if (ID.test(reference)) return { id: reference, namesakes: 1 };
      const { items } = await unwrap(api.GET("/api/v1/training/jobs", { params: { query }, signal }));
      const sameName = items.filter(({ name }) => name === reference);
      const inSight = sameName.find(({ archived_at: archived }) => archived === null);
      const found = items.find(({ id }) => id === reference) ?? inSight ?? sameName[0];
      if (!found) throw new ApiError({ status: 404, code: "job_not_found", detail: `There is no job ${reference}.` });
      return { id: found.id, namesakes: Math.max(1, sameName.length) };
    },
    staleTime: Infinity,
  });
}

/** What jobs can be filtered by. */
export const facetsQuery = queryOptions({
  queryKey: keys.jobFacets,
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/training/job-facets", { signal })),
  staleTime: FACETS_STALE_MS,
});
