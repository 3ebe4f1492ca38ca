import { useDocumentVisibility } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { useRoleRefusal } from "@/lib/ownership";
import type { Experiment } from "@/lib/types";
import { useNow } from "@/lib/useNow";
import { analysisQuery, useAnalyze } from "./api/analysis";
import { needsAnalysis } from "./experiments";

const LOOK_EVERY_MS = 5_000;

/**
 * The newest analysis, and how another one is made: by itself as trials end, while the page is looked at by somebody who may.
 * After an error it is left to the button.
 */
export function useFreshAnalysis(experiment: Experiment) {
  const source = useQuery(analysisQuery(experiment));
  const analyze = useAnalyze(experiment.id);
  const refused = useRoleRefusal("member");
  const { mutate, isIdle, isSuccess, data: own, submittedAt } = analyze;
  const since = useNow(LOOK_EVERY_MS) - Math.max(source.dataUpdatedAt, submittedAt);
  const wanted = needsAnalysis(experiment, own ?? source.data, since);
  const rests = (isIdle || isSuccess) && !source.isPlaceholderData && refused === null;
  const seen = useDocumentVisibility() === "visible";
  useEffect(() => {
    if (wanted && rests && seen) mutate();
  }, [wanted, rests, seen, mutate]);
  return { source, analyze };
}
