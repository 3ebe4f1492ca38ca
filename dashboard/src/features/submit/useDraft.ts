import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { asApiError } from "@/lib/errors";
import type { Part } from "@/lib/spec/document";
import { serverIssues } from "@/lib/spec/issues";
import type { Schema } from "@/lib/spec/schema";
import { useDocument } from "@/lib/spec/useDocument";
import { planQuery } from "./api/submit";
import { withWorkload, type Workload } from "./workload";

/** The document being written, what is wrong with it, and what it would do. */
export function useDraft(initial: string, schema: Schema | undefined) {
  const { local, debounced, ...document } = useDocument(initial, schema);
  const { text, setText, value, sound } = document;
  /** Parts that the chosen kind of workload goes without. */
  const [aside, setAside] = useState<readonly Part[]>([]);
  const plan = useQuery(planQuery(debounced));
  const planError = debounced !== null && plan.error ? asApiError(plan.error) : null;
  const issues = useMemo(() => (local.length ? local : serverIssues(planError, value)), [local, planError, value]);
  const choose = (workload: Workload) => {
    const chosen = withWorkload(text, aside, workload, Object.keys(schema?.properties ?? {}));
    setText(chosen.text);
    setAside(chosen.aside);
  };
  /** The shown plan answers exactly this text. */
  const current = sound && debounced === value && !plan.isPlaceholderData && !plan.error && plan.data !== undefined;
  return { ...document, choose, issues, plan, planError, current };
}

export type Draft = ReturnType<typeof useDraft>;
