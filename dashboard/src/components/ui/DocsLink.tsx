import type { ReactNode } from "react";

/** A link to a page of the documentation that the coordinator serves, in a tab of its own. */
export function DocsLink({ page, children }: { page: string; children: ReactNode }) {
  return (
    <a href={`/docs/${page}`} target="_blank" rel="noopener" className="inText">
      {children}
    </a>
  );
}
