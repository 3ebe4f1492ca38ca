import { useQuery } from "@tanstack/react-query";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { comparisonQuery } from "../api/compare";
import { ComparisonPanel } from "./ComparisonPanel";

interface Props {
  jobs: readonly string[];
  live: boolean;
}

/** Each further job beside the first one. */
export function Comparisons({ jobs, live }: Props) {
  const query = useQuery(comparisonQuery(jobs, live));
  if (query.data && !query.error && query.data.items.length > 0)
    return query.data.items.map((one) => <ComparisonPanel key={one.jobs[1]!.id} comparison={one} />);
  return (
    <>
      <Panel label="Comparison" flush>
        <PanelStates
          source={query}
          what="the comparison"
          rows={5}
          isEmpty={({ items }) => items.length === 0}
          empty={<EmptyState title="Nothing to compare">Choose another job.</EmptyState>}
        >
          {() => null}
        </PanelStates>
      </Panel>
      {query.data?.items.map((one) => (
        <ComparisonPanel key={one.jobs[1]!.id} comparison={one} />
      ))}
    </>
  );
}
