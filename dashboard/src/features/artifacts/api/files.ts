import {
  infiniteQueryOptions,
  keepPreviousData,
  queryOptions,
  useMutation,
  useQueryClient,
} from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { problemOf } from "@/lib/errors";
import { keys } from "@/lib/keys";
import type { LeftFile } from "@/lib/types";

/** Files in a request: a folder of 10,000 is ten of them. */
const PAGE = 1000;
const LIVE_INTERVAL_MS = 5_000;
/** Of a text, as much is shown. Images are read whole, up to their own limit. */
export const MOST_TEXT = 256 * 1024;
export const MOST_IMAGE = 16 * 1024 ** 2;

/** A folder of the job's files, page by page. */
export function folderQuery(jobId: string, prefix: string, live: boolean) {
  return infiniteQueryOptions({
    queryKey: keys.files(jobId, prefix),
    queryFn: ({ signal, pageParam }) =>
      unwrap(
        api.GET("/api/v1/training/jobs/{job_id}/files", {
          params: { path: { job_id: jobId }, query: { prefix, limit: PAGE, cursor: pageParam } },
          signal,
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
    // Whoever has opened many pages has them read again by hand.
    refetchInterval: ({ state }) => {
      const pages = state.data?.pages ?? [];
      return (live || (pages[0]?.arriving ?? 0) > 0) && pages.length <= 1 && LIVE_INTERVAL_MS;
    },
  });
}

export function useRemoveFile(jobId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ path }: LeftFile) =>
      unwrap(
        api.DELETE("/api/v1/training/jobs/{job_id}/files", { params: { path: { job_id: jobId }, query: { path } } }),
      ),
    onSettled: () => client.invalidateQueries({ queryKey: keys.everyFile(jobId) }),
  });
}

const filesOf = (jobId: string) => `/api/v1/training/jobs/${jobId}/files`;

/** Links that the browser follows by itself: the session's cookie goes along. */
export const fileUrl = (jobId: string, path: string) => `${filesOf(jobId)}/content?path=${encodeURIComponent(path)}`;
export const archiveUrl = (jobId: string, prefix: string) =>
  `${filesOf(jobId)}/archive${prefix ? `?prefix=${encodeURIComponent(prefix)}` : ""}`;

/** The beginning of a file, or all of an image; never interpreted as anything but what the preview makes of it. */
export function contentQuery(jobId: string, { path, sha256, bytes, media_type: type }: LeftFile) {
  const image = type.startsWith("image/");
  return queryOptions({
    queryKey: keys.fileContent(jobId, path, sha256),
    queryFn: async ({ signal }) => {
      if (bytes === 0) return image ? new Blob([], { type }) : ""; // no range begins in it
      const headers = image ? undefined : { Range: `bytes=0-${MOST_TEXT - 1}` };
      const url = new URL(fileUrl(jobId, path), globalThis.location.origin);
      const answer = await globalThis.fetch(new Request(url, { headers, signal, credentials: "same-origin" }));
      if (!answer.ok) throw problemOf(await answer.json().catch(() => null), answer);
      return image ? new Blob([await answer.arrayBuffer()], { type }) : await answer.text();
    },
    staleTime: Infinity,
  });
}
