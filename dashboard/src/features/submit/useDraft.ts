import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { asApiError } from "@/lib/errors";
import { planQuery } from "./api/submit";
import { parse, setField, type Part } from "./document";
import { serverIssues } from "./issues";
import { validate, type Issue, type Path, type Schema } from "./schema";
import { withWorkload, type Workload } from "./workload";

const TYPING_PAUSE_MS = 350;

/** The document being written, what is wrong with it, and what it would do. */
export function useDraft(initial: string, schema: Schema | undefined) {
  const [text, setText] = useState(initial);
  /** Parts that the chosen kind of workload goes without. */
  const [aside, setAside] = useState<readonly Part[]>([]);
  const parsed = useMemo(() => parse(text), [text]);
  const local = useMemo<Issue[]>(
    () => (schema && parsed.value !== undefined ? validate(schema, parsed.value) : []),
    [schema, parsed],
  );
  const sound = parsed.problems.length === 0 && local.length === 0 && schema !== undefined;
  const [settled] = useDebouncedValue(sound ? parsed.value : null, TYPING_PAUSE_MS);
  const plan = useQuery(planQuery(settled));
  const planError = settled !== null && plan.error ? asApiError(plan.error) : null;
  const issues = useMemo(
    () => (local.length ? local : serverIssues(planError, parsed.value)),
    [local, planError, parsed.value],
  );
  const set = useCallback((path: Path, value: unknown) => setText((old) => setField(old, path, value)), []);
  const choose = (workload: Workload) => {
    const chosen = withWorkload(text, aside, workload, Object.keys(schema?.properties ?? {}));
    setText(chosen.text);
    setAside(chosen.aside);
  };
  /** The shown plan answers exactly this text. */
  const current =
    sound && settled === parsed.value && !plan.isPlaceholderData && !plan.error && plan.data !== undefined;
  return {
    text,
    setText,
    set,
    choose,
    value: parsed.value,
    problems: parsed.problems,
    issues,
    sound,
    plan,
    planError,
    current,
  };
}

export type Draft = ReturnType<typeof useDraft>;
