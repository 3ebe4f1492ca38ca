import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { asApiError } from "@/lib/errors";
import { serverIssues } from "@/lib/spec/issues";
import type { Schema } from "@/lib/spec/schema";
import { useDocument } from "@/lib/spec/useDocument";
import { experimentPlanQuery } from "./api/create";

/** The experiment being written, what is wrong with it, and what it would run. */
export function useExperimentDraft(initial: string, schema: Schema) {
  const { local, settled, ...document } = useDocument(initial, schema);
  const { value, sound } = document;
  const plan = useQuery(experimentPlanQuery(settled));
  const planError = settled !== null && plan.error ? asApiError(plan.error) : null;
  const wrong = planError ?? (settled !== null && plan.data?.errors.length ? plan.data : null);
  const issues = useMemo(() => (local.length ? local : serverIssues(wrong, value)), [local, wrong, value]);
  /** The shown plan answers exactly this text. */
  const answered = sound && settled === value && !plan.isPlaceholderData && !plan.error && plan.data !== undefined;
  return { ...document, issues, plan, planError, current: answered && issues.length === 0 };
}

export type ExperimentDraft = ReturnType<typeof useExperimentDraft>;
