import { Select } from "@mantine/core";
import { IconZzz } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Facts, type Fact } from "@/components/ui/Facts";
import { Notice } from "@/components/ui/Notice";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import { measured, percent, plural } from "@/lib/format";
import type { JobUsage } from "@/lib/types";
import { cardCurvesQuery, usageQuery } from "../api/readings";
import { firstRanks } from "../cardRanks";
import { MOST_LINES } from "../rankLines";
import { CARD_READINGS, cardLines, readingTitle, readingWords, type CardReading } from "../readings";
import { besideTitle, readingUnit } from "../units";
import { CardRanks } from "./CardRanks";
import { namesOf } from "./IdleCards";
import classes from "./Metrics.module.css";
import { ReadingChart } from "./ReadingChart";

interface Props {
  jobId: string;
  world: number;
  live: boolean;
  metric: CardReading | undefined;
  onMetric(metric: CardReading): void;
}

const JOULES_PER_KWH = 3.6e6;

/** What the ranks' cards were doing at each step, what they drew, and which of them do nothing. */
export function CardPanel({ jobId, world, live, metric = "utilization_percent", onMetric }: Props) {
  const [asTable, setAsTable] = useState(false);
  const [picked, setPicked] = useState<number[]>([]);
  const ranks = picked.length > 0 ? picked : firstRanks(world);
  const usage = useQuery(usageQuery(jobId, live));
  const query = useQuery(cardCurvesQuery(jobId, metric, ranks.join(), live));
  const cards = query.data?.cards ?? [];
  const unit = readingUnit(cards[0]?.unit ?? "");
  return (
    <Panel
      label="Cards"
      title={
        <>
          Cards
          <Select
            aria-label="Reading of the cards"
            w={260}
            value={metric}
            data={CARD_READINGS.map((name) => ({ value: name, label: readingTitle(name) }))}
            allowDeselect={false}
            onChange={(chosen) => onMetric(CARD_READINGS.find((name) => name === chosen) ?? metric)}
          />
          <span className="hint">{besideTitle(unit)}</span>
        </>
      }
      actions={<TableToggle pressed={asTable} onChange={setAsTable} what="Cards" />}
    >
      {usage.data && <IdleNotice usage={usage.data} />}
      {usage.data && <Facts facts={factsOf(usage.data)} size="sm" />}
      {world > MOST_LINES && (
        <CardRanks world={world} cards={usage.data?.cards ?? []} chosen={ranks} onChosen={setPicked} />
      )}
      <PanelStates
        source={query}
        what="the readings of the cards"
        rows={5}
        isEmpty={() => cards.length === 0}
        empty={
          <EmptyState title="No readings of cards">
            {usage.data?.cards.every(({ card }) => card === null)
              ? "The ranks of this job are on CPU slots."
              : `The cards were not read, or do not tell their ${readingWords(metric)}.`}
          </EmptyState>
        }
      >
        {() => (
          <>
            <ReadingChart
              metric={metric}
              unit={unit}
              lines={cardLines(cards, metric)}
              axis="step"
              asTable={asTable}
              drawn={String(query.dataUpdatedAt)}
            />
            {world > MOST_LINES && picked.length === 0 && (
              <p className={classes.summary}>
                Shown are ranks 0–{MOST_LINES - 1}, as many as there are colours;{" "}
                {plural(world - MOST_LINES, "more rank")} {world - MOST_LINES === 1 ? "is" : "are"} not drawn.
              </p>
            )}
          </>
        )}
      </PanelStates>
    </Panel>
  );
}

function IdleNotice({ usage }: { usage: JobUsage }) {
  const idle = usage.cards.flatMap(({ idle: isIdle, card, ...rest }) =>
    isIdle && card !== null ? [{ card, ...rest }] : [],
  );
  if (idle.length === 0) return null;
  return (
    <Notice icon={IconZzz} label="Idle cards" tone="warn" title={`The job holds ${plural(idle.length, "idle card")}`}>
      <p>Used for less than 5% of the last five minutes: {namesOf(idle)}.</p>
    </Notice>
  );
}

function factsOf({ slot_hours: hours, energy_joules: energy, cards }: JobUsage): Fact[] {
  const read = cards.filter(({ energy_joules: joules }) => joules !== null);
  const held = read.reduce((sum, { held_seconds: seconds }) => sum + seconds, 0);
  const covered = read.reduce((sum, card) => sum + card.held_seconds * card.measured_ratio, 0);
  return [
    { name: "Slot-hours", value: measured(hours), hint: "slots times the hours they were held" },
    energy === null
      ? { name: "Energy", value: "unknown", hint: "the power of a slot was not read, or is no longer kept" }
      : {
          name: "Energy",
          value: `${measured(energy / JOULES_PER_KWH)} kWh`,
          hint: `of the cards; power read for ${percent(held > 0 ? covered / held : 0)} of the time`,
        },
  ];
}
