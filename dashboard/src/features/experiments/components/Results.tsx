import { Button } from "@mantine/core";
import { useMemo } from "react";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, type Source } from "@/components/ui/Panel";
import { useRoleRefusal } from "@/lib/ownership";
import type { Analysis, Experiment, ExperimentAnalysis, Trial } from "@/lib/types";
import { ended, isOver, newerTrials } from "../experiments";
import { withStrategies } from "../fields";
import type { Goal } from "../figures";
import type { LossAxis } from "../losses";
import { asksOfScaling } from "../scaling";
import type { ComparedBy } from "../comparisons";
import { ComparisonsChart } from "./ComparisonsChart";
import { ConfigurationsTable } from "./ConfigurationsTable";
import classes from "./Experiments.module.css";
import { FitsChart } from "./FitsChart";
import { HeatMap } from "./HeatMap";
import { Interpretation } from "./Interpretation";
import { LossChart } from "./LossChart";
import { Outliers } from "./Outliers";
import { ParallelCoordinates } from "./ParallelCoordinates";
import { ParetoChart } from "./ParetoChart";
import { ScalingChart } from "./ScalingChart";
import { SplitChart } from "./SplitChart";

/** What stands in the URL of the results. */
export interface ResultsView {
  /** By what the losses are drawn. */
  by?: LossAxis;
  /** Their axis; left out, it is a log axis where losses are far apart. */
  log?: boolean;
  /** Of the heat map. */
  across?: string;
  down?: string;
  figure?: string;
  /** The law that is drawn. */
  fit?: string;
  /** Of the differences; left out: by values. */
  compare?: ComparedBy;
  compared?: string;
}

interface Props {
  experiment: Experiment;
  source: Source<ExperimentAnalysis | null>;
  trials: readonly Trial[];
  metric: string;
  goal: Goal;
  view: ResultsView;
  onView(view: ResultsView): void;
  analyzing: boolean;
  onAnalyze(): void;
}

/** What was found: first in sentences, then the configurations, then in figures. */
export function Results(props: Props) {
  const { experiment, source, trials, metric, goal, analyzing, onAnalyze } = props;
  const made = source.data;
  const analysis = useMemo(() => made && withStrategies(made.analysis), [made]);
  return (
    <div className="stack">
      <Interpretation
        source={source}
        newer={made ? newerTrials(experiment.trials, made) : 0}
        busy={analyzing}
        empty={<NotAnalyzed experiment={experiment} busy={analyzing} onAnalyze={onAnalyze} />}
        onAnalyze={onAnalyze}
      />
      {analysis && (
        <>
          <ConfigurationsTable analysis={analysis} trials={trials} metric={metric} goal={goal} />
          <ParallelCoordinates analysis={analysis} metric={metric} />
          <Figures {...props} analysis={analysis} />
        </>
      )}
    </div>
  );
}

function Figures({ analysis, trials, metric, goal, view, onView }: Props & { analysis: Analysis }) {
  return (
    <div className={classes.figures}>
      <div className="stack">
        {asksOfScaling(analysis) && (
          <>
            <ScalingChart analysis={analysis} />
            <FitsChart analysis={analysis} chosen={view.fit} onChoose={(fit) => onView({ fit })} />
          </>
        )}
        <SplitChart analysis={analysis} />
        <Outliers analysis={analysis} trials={trials} metric={metric} />
      </div>
      <div className="stack">
        <LossChart
          analysis={analysis}
          axis={view.by ?? "samples"}
          onAxis={(by) => onView({ by: by === "samples" ? undefined : by })}
          log={view.log}
          onLog={(log) => onView({ log })}
        />
        <HeatMap
          analysis={analysis}
          metric={metric}
          goal={goal}
          view={{ x: view.across, y: view.down, figure: view.figure }}
          onView={({ x, y, figure }) => onView({ across: x, down: y, figure })}
        />
        <ParetoChart analysis={analysis} metric={metric} goal={goal} />
        <ComparisonsChart
          analysis={analysis}
          metric={metric}
          view={{ by: view.compare ?? "values", figure: view.compared }}
          onView={({ by, figure }) => onView({ compare: by === "values" ? undefined : by, compared: figure })}
        />
      </div>
    </div>
  );
}

function NotAnalyzed({ experiment, busy, onAnalyze }: { experiment: Experiment; busy: boolean; onAnalyze(): void }) {
  const refused = useRoleRefusal("member");
  if (ended(experiment.trials) === 0)
    return (
      <EmptyState title="No result yet">
        {isOver(experiment.state)
          ? "No trial of this experiment has come to its end."
          : "The first trials are under way; what they say stands here once one has ended."}
      </EmptyState>
    );
  return (
    <EmptyState
      title={busy ? "Analyzing" : "Not analyzed yet"}
      action={
        <Guarded refused={refused}>
          <Button loading={busy} onClick={onAnalyze}>
            Analyze
          </Button>
        </Guarded>
      }
    >
      An analysis compares what the trials that ended have measured, and can be made again at any time.
    </EmptyState>
  );
}
