import { infiniteQueryOptions, keepPreviousData, useMutation } from "@tanstack/react-query";
import type { components } from "@/lib/api.generated";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import { tarOf } from "@/lib/tar";
import type { Code } from "../code";
import type { Folder } from "../folder";

export type SentFolder = components["schemas"]["FolderBundle"];
export type EarlierCode = components["schemas"]["EarlierCode"];

const PAGE = 20;

/** The code of earlier jobs, each once by its newest job; `q`: of the jobs that this text finds. */
export function earlierCodeQuery(q: string) {
  return infiniteQueryOptions({
    queryKey: keys.earlierCode(q),
    queryFn: ({ signal, pageParam }) =>
      unwrap(
        api.GET("/api/v1/training/bundles", {
          params: { query: { q: q || undefined, cursor: pageParam, limit: PAGE } },
          signal,
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });
}

interface Upload {
  choose(): Promise<Folder>;
  /** Told also where what began the upload is shown no more. */
  onSent(code: Partial<Code>): void;
}

/**
 * Sends a folder as it is; the coordinator packs it, and leaves out what its ignore files say.
 *
 * Whoever submits the document holds it: until the folder is sent, the document has not its code.
 */
export function useSendFolder() {
  return useMutation({
    mutationFn: async ({ choose }: Upload): Promise<{ name: string; sent: SentFolder }> => {
      const { name, files } = await choose();
      const sent = await unwrap(
        api.POST("/api/v1/training/bundles", {
          params: { query: { folder: name } },
          body: tarOf(files) as unknown as string,
          bodySerializer: (archive: unknown) => archive as Blob,
          headers: { "Content-Type": "application/x-tar" },
        }),
      );
      return { name, sent };
    },
    onSuccess: ({ name, sent }, { onSent }) => onSent({ bundle: sent.digest, folder: name }),
  });
}

export type SendFolder = ReturnType<typeof useSendFolder>;
