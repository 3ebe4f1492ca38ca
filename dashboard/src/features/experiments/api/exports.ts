import { useMutation } from "@tanstack/react-query";
import { problemOf, UnreachableError } from "@/lib/errors";
import { download } from "@/lib/files";

export type ExportQuery = Readonly<Record<string, string>>;

/** A link that the browser follows by itself: the session's cookie goes along. */
export const exportUrl = (experimentId: string, query: ExportQuery) =>
  `/api/v1/experiments/${experimentId}/export?${new URLSearchParams(query).toString()}`;

export interface WantedFigure {
  query: ExportQuery;
  name: string;
}

/** Saves a figure as a file. Not by a link: a coordinator without what draws figures says so, and a link would show none of it. */
export function useFigureExport(experimentId: string) {
  return useMutation({
    mutationFn: async ({ query, name }: WantedFigure) => {
      const url = new URL(exportUrl(experimentId, query), globalThis.location.origin);
      const answer = await globalThis.fetch(new Request(url, { credentials: "same-origin" })).catch(() => {
        throw new UnreachableError();
      });
      if (!answer.ok) throw problemOf(await answer.json().catch(() => null), answer);
      download(await answer.blob(), name);
    },
  });
}
