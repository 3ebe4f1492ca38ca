import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { asApiError } from "@/lib/errors";
import { serverIssues } from "@/lib/spec/issues";
import type { Schema } from "@/lib/spec/schema";
import { useDocument } from "@/lib/spec/useDocument";
import { experimentPlanQuery } from "./api/create";

/** The experiment being written, what is wrong with it, and what it would run. */
export function useExperimentDraft(initial: string, schema: Schema) {
  const { local, debounced, ...document } = useDocument(initial, schema);
  const { value, sound } = document;
  const plan = useQuery(experimentPlanQuery(debounced));
  const planError = debounced !== null && plan.error ? asApiError(plan.error) : null;
  const wrong = planError ?? (debounced !== null && plan.data?.errors.length ? plan.data : null);
  const issues = useMemo(() => (local.length ? local : serverIssues(wrong, value)), [local, wrong, value]);
  /** The shown plan answers exactly this text. */
  const answered = sound && debounced === value && !plan.isPlaceholderData && !plan.error && plan.data !== undefined;
  const current = answered && issues.length === 0;
  /** How many trials the shown plan would run; null while the plan is on its way. */
  const trials = current ? plan.data.trials - plan.data.refused : null;
  /** Also while the plan is on its way: leaving a field by a click on a button changes the text under that click. */
  const startable = sound && issues.length === 0 && planError === null && trials !== 0;
  return { ...document, issues, plan, planError, current, trials, startable };
}

export type ExperimentDraft = ReturnType<typeof useExperimentDraft>;
