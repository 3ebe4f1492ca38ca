import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { IconHourglass, IconReportAnalytics } from "@tabler/icons-react";
import { Facts, type Fact } from "@/components/ui/Facts";
import { Guarded } from "@/components/ui/Guarded";
import { Notice } from "@/components/ui/Notice";
import { PageHeader } from "@/components/ui/PageHeader";
import { StackedBar } from "@/components/ui/StackedBar";
import { StateBadge } from "@/components/ui/StateBadge";
import { age, count, dateTime, duration, measured, MISSING, plural, sentence } from "@/lib/format";
import { useRoleRefusal } from "@/lib/ownership";
import type { Experiment, Trial } from "@/lib/types";
import { useServerNow } from "@/lib/useNow";
import { barOf, countsInWords, isOver, notCompletedInWords } from "../experiments";
import { axisTitle } from "../figures";
import { ExperimentActions } from "./ExperimentActions";
import classes from "./Experiments.module.css";
import { ExportMenu } from "./ExportMenu";
import type { HeatView } from "./HeatMap";
import { RunLonger } from "./RunLonger";

interface Props {
  experiment: Experiment;
  trials: readonly Trial[];
  metric: string;
  analyzed: boolean;
  analyzing: boolean;
  onAnalyze(): void;
  heatMap: HeatView;
}

export function ExperimentHeader({ experiment, trials, metric, analyzed, analyzing, onAnalyze, heatMap }: Props) {
  const {
    name,
    project,
    created_at: at,
    created_by: by,
    id,
    state,
    description,
    trials: counts,
    waits_for: waits,
  } = experiment;
  const now = useServerNow(5_000);
  return (
    <>
      <PageHeader
        title={name}
        before={
          <Link to="/experiments" className="back">
            Experiments
          </Link>
        }
        after={<StateBadge state={state}>{state === "stopped" ? "stopped: budget used up" : state}</StateBadge>}
        subtitle={
          <>
            {project} · created {dateTime(at)} by {by.name} · <span className="mono">{id}</span>
            {description && <div>{description}</div>}
          </>
        }
        actions={
          <>
            <Guarded refused={useRoleRefusal("member")}>
              <Button
                variant="default"
                leftSection={<IconReportAnalytics size={14} />}
                loading={analyzing}
                onClick={onAnalyze}
              >
                {analyzed ? "Analyze again" : "Analyze"}
              </Button>
            </Guarded>
            <ExportMenu experiment={experiment} disabled={!analyzed} heatMap={heatMap} />
            <RunLonger experiment={experiment} trials={trials} />
            <ExperimentActions experiment={experiment} />
          </>
        }
      />
      {waits && (
        <Notice icon={IconHourglass} label="Why no trial runs" title={sentence(waits.text)}>
          {waits.next_step && <div>Next: {waits.next_step}</div>}
        </Notice>
      )}
      <div className={classes.strip}>
        <Facts facts={factsOf(experiment, metric, now)} />
        <StackedBar parts={barOf(counts)} label={`Trials: ${countsInWords(counts)}`} size="sm" />
        <p className={classes.counts}>{countsInWords(counts)}</p>
      </div>
    </>
  );
}

function factsOf(experiment: Experiment, metric: string, now: number): Fact[] {
  const { trials, seconds_left: left, slot_hours: used, best_metric: best, best_trial: trial, axes } = experiment;
  const ends = experiment.ended_at;
  return [
    {
      name: "Trials completed",
      value: count(trials.completed),
      hint: [`of ${count(trials.total)}`, notCompletedInWords(trials)].filter(Boolean).join(", "),
    },
    isOver(experiment.state) && ends
      ? {
          name: "Duration",
          value: duration((Date.parse(ends) - Date.parse(experiment.created_at)) / 1000),
          hint: `ended ${age(now - Date.parse(ends))} ago`,
        }
      : { name: "Time left", value: duration(left), hint: left === null ? "known once a trial has ended" : "estimate" },
    { name: "Slot-hours", value: measured(used), hint: budgetOf(experiment) },
    {
      name: `Best ${metric}`,
      value: measured(best),
      hint: trial === null ? "no result yet" : `trial ${trial}`,
    },
    { name: "Varies", value: count(axes.length), hint: axes.length > 0 ? namesOf(axes) : MISSING },
  ];
}

const MOST_NAMES = 3;

function namesOf(axes: readonly string[]): string {
  const more = axes.length - MOST_NAMES;
  return axes.slice(0, MOST_NAMES).map(axisTitle).join(", ") + (more > 0 ? `, ${plural(more, "more field")}` : "");
}

function budgetOf({ spec }: Experiment): string | undefined {
  const budget = spec.budget as { slot_hours?: number | null } | undefined;
  return budget?.slot_hours == null ? "no limit" : `of ${measured(budget.slot_hours)} budgeted`;
}
