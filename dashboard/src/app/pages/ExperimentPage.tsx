import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { CopyAction } from "@/components/ui/CopyBox";
import { ErrorText } from "@/components/ui/ErrorText";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { experimentQuery, trialsQuery } from "@/features/experiments/api/experiments";
import { ExperimentHeader } from "@/features/experiments/components/ExperimentHeader";
import { Results } from "@/features/experiments/components/Results";
import { TrialsTable } from "@/features/experiments/components/TrialsTable";
import { isOver } from "@/features/experiments/experiments";
import { useFreshAnalysis } from "@/features/experiments/useFreshAnalysis";
import { asApiError } from "@/lib/errors";
import { toYaml } from "@/lib/spec/yaml";
import type { Experiment } from "@/lib/types";
import { EXPERIMENT_TABS, type ExperimentSearch } from "../search";
import classes from "./ExperimentPage.module.css";
import { Tabs } from "./Tabs";

const route = getRouteApi("/shell/experiments/$experimentId");

export function ExperimentPage() {
  const { experimentId } = route.useParams();
  const query = useQuery(experimentQuery(experimentId));
  return (
    <>
      {(!query.data || query.error) && (
        <Panel label="Experiment" flush>
          <PanelStates source={query} what="this experiment" rows={8}>
            {() => null}
          </PanelStates>
        </Panel>
      )}
      {query.data && <ExperimentView key={experimentId} experiment={query.data} />}
    </>
  );
}

interface Metric {
  name?: string;
  goal?: "minimize" | "maximize";
}

function ExperimentView({ experiment }: { experiment: Experiment }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { id, spec, axes, best_trial: best } = experiment;
  const live = !isOver(experiment.state);
  const { name: metric = "loss", goal = "minimize" } = (spec.metric ?? {}) as Metric;
  const trials = useQuery(trialsQuery(id, live));
  const { source: analysis, analyze } = useFreshAnalysis(experiment);
  const change = (part: Partial<ExperimentSearch>) =>
    void navigate({ search: { ...search, ...part }, replace: true, resetScroll: false });
  const tab = search.tab ?? "results";
  return (
    <>
      <ExperimentHeader
        experiment={experiment}
        trials={trials.data ?? []}
        metric={metric}
        analyzed={analysis.data != null}
        analyzing={analyze.isPending}
        onAnalyze={() => analyze.mutate()}
        heatMap={{ x: search.across, y: search.down, figure: search.figure }}
      />
      {analyze.error && (
        <p className={classes.refused} role="alert">
          Not analyzed: <ErrorText error={analyze.error} /> <code>{asApiError(analyze.error).code}</code>
        </p>
      )}
      <Tabs
        tabs={EXPERIMENT_TABS}
        chosen={tab}
        label="Experiment views"
        counts={{ trials: experiment.trials.total }}
        onChoose={(next) => change({ tab: next === "results" ? undefined : next })}
      >
        {tab === "results" && (
          <Results
            experiment={experiment}
            source={analysis}
            trials={trials.data ?? []}
            metric={metric}
            goal={goal}
            view={search}
            onView={change}
            analyzing={analyze.isPending}
            onAnalyze={() => analyze.mutate()}
          />
        )}
        {tab === "trials" && (
          <Panel
            title="Trials"
            actions={
              <Link to="/jobs" search={{ experiment: id }}>
                Jobs of all trials
              </Link>
            }
            flush
          >
            <PanelStates
              source={trials}
              what="the trials"
              rows={8}
              isEmpty={(all) => all.length === 0}
              empty={<EmptyState title="No trials yet">They are made as the experiment begins.</EmptyState>}
            >
              {(all) => <TrialsTable trials={all} axes={axes} metric={metric} goal={goal} best={best} />}
            </PanelStates>
          </Panel>
        )}
        {tab === "spec" && (
          <Spec
            experiment={experiment}
            onVary={() => void navigate({ to: "/experiments/new", search: { again: id } })}
          />
        )}
      </Tabs>
    </>
  );
}

function Spec({ experiment, onVary }: { experiment: Experiment; onVary(): void }) {
  const text = toYaml(experiment.spec);
  return (
    <Panel
      title="Spec"
      actions={
        <>
          <Button size="compact-xs" variant="default" onClick={onVary}>
            New experiment from this
          </Button>
          <CopyAction value={text} label="Copy YAML" />
        </>
      }
      flush
    >
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls must be reachable by keyboard */}
      <pre className={classes.spec} tabIndex={0} role="region" aria-label="Experiment spec as YAML">
        {text}
      </pre>
    </Panel>
  );
}
