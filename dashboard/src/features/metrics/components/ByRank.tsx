import { Menu } from "@mantine/core";
import { IconGridDots } from "@tabler/icons-react";
import type { Measure } from "../measures";

/** What a job's ranks can be compared by, and the way there. */
export interface RankComparison {
  measures: readonly Measure[];
  onOpen(measure: string): void;
}

interface Props extends RankComparison {
  /** The metrics of the chart. */
  names: readonly string[];
}

/** Entries of a chart's menu, one for each of its metrics: the metric of every rank, in the heat map. */
export function ByRank({ names, measures, onOpen }: Props) {
  const offered = measures.filter(({ name }) => names.includes(name));
  if (offered.length === 0) return null;
  return (
    <>
      <Menu.Divider />
      {offered.map(({ name, label }) => (
        <Menu.Item key={name} leftSection={<IconGridDots size={14} />} onClick={() => onOpen(name)}>
          {offered.length === 1 ? "By rank" : `By rank: ${label}`}
        </Menu.Item>
      ))}
    </>
  );
}
