/** `environment.code` of a document: which code a job has, and where it came from. */
import type { components } from "@/lib/api.generated";
import { plural } from "@/lib/format";

export type Code = components["schemas"]["Code"];

const SHORT_COMMIT = 12;

/** "commit 0123456789ab of main, 2 files differed"; null: it came from no git repository, or the document does not say so rightly. */
export function originOf({ commit, branch, uncommitted }: Record<string, unknown>): string | null {
  if (typeof commit !== "string" || !commit) return null;
  const of = typeof branch === "string" ? ` of ${branch}` : "";
  const changed = Array.isArray(uncommitted) ? uncommitted.length : 0;
  return `commit ${commit.slice(0, SHORT_COMMIT)}${of}${changed > 0 ? `, ${plural(changed, "file")} differed` : ""}`;
}

/** The section as a person would write it: without what is not known. */
export function sectionOf(code: Code): Partial<Code> {
  const known = Object.entries(code).filter(([, value]) => value !== null && !(Array.isArray(value) && !value.length));
  return Object.fromEntries(known);
}
