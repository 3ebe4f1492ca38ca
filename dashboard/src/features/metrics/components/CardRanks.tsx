import { Button, Group, MultiSelect } from "@mantine/core";
import type { JobUsage } from "@/lib/types";
import { firstOfNodes } from "../cardRanks";
import { MOST_LINES } from "../rankLines";

interface Props {
  world: number;
  /** Tell the node of each rank. */
  cards: JobUsage["cards"];
  chosen: readonly number[];
  onChosen(ranks: number[]): void;
}

/** As many names as a list shows at once: the others are found by typing. */
const MOST_LISTED = 64;

/** Which ranks of a job have a line, where there are more than colours. */
export function CardRanks({ world, cards, chosen, onChosen }: Props) {
  const nodeOf = new Map(cards.map(({ rank, node_name: node }) => [rank, node]));
  const ranks = Array.from({ length: world }, (_, rank) => rank);
  const ofNodes = firstOfNodes(cards);
  return (
    <Group gap="xs" align="flex-end" mb="xs">
      <MultiSelect
        label="Ranks"
        size="xs"
        data={ranks.map((rank) => ({
          value: String(rank),
          label: nodeOf.has(rank) ? `Rank ${rank}, ${nodeOf.get(rank)}` : `Rank ${rank}`,
        }))}
        value={chosen.map(String)}
        onChange={(values) => onChosen(values.map(Number))}
        maxValues={MOST_LINES}
        limit={MOST_LISTED}
        searchable
      />
      {ofNodes.length > 1 && (
        <Button size="compact-sm" variant="default" onClick={() => onChosen(ofNodes)}>
          One per node
        </Button>
      )}
    </Group>
  );
}
