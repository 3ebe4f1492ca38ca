import { useQueries } from "@tanstack/react-query";
import { jobQuery } from "@/lib/jobQuery";
import { isTerminal, startOf } from "@/lib/jobs";
import { overlayQuery } from "./api/overlay";
import type { ComparedRun } from "./runs";
import type { StepRange } from "./stepRange";

interface DrawnRuns {
  runs: ComparedRun[];
  /** Changes with what is to be drawn. */
  version: string;
}

/** Other jobs beside the one of the page, each from its own start and for as long as it runs; those that are still loading are left out. */
export function useDrawnRuns(ids: readonly string[], names: readonly string[], range: StepRange | null): DrawnRuns {
  const jobs = useQueries({ queries: ids.map(jobQuery) }).map(({ data }) => data);
  const results = useQueries({
    queries: ids.map((id, index) => {
      const job = jobs[index];
      return overlayQuery(id, names, range ?? {}, job !== undefined && !isTerminal(job.state));
    }),
  });
  const runs = jobs.flatMap((job, index) => {
    const curves = results[index]!.data?.curves ?? [];
    return job ? [{ id: job.id, name: job.name, startedAt: startOf(job), curves }] : [];
  });
  const version = [...runs.map(({ startedAt }) => startedAt), ...results.map((each) => each.dataUpdatedAt)].join();
  return { runs, version };
}
