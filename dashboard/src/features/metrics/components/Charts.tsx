import { Button } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useState, type ReactNode } from "react";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { soFar } from "@/lib/jobs";
import { useRoleRefusal } from "@/lib/ownership";
import { axesOf } from "../axes";
import { chartsFor, SPLIT_TITLE } from "../catalog";
import { NEW_CHART, type OwnChart } from "../ownCharts";
import type { StepRange } from "../stepRange";
import type { MetricsStore } from "../store";
import type { Unit } from "../units";
import type { MetricsFeed } from "../useMetricsFeed";
import { useStoreVersion } from "../useStoreVersion";
import { settingsOf, type ChartView } from "../view";
import classes from "./Metrics.module.css";
import { BrowserCharts } from "./BrowserCharts";
import type { RankComparison } from "./ByRank";
import { ChartToolbar } from "./ChartToolbar";
import { CurveChart } from "./CurveChart";
import { OwnChartDialog } from "./OwnChartDialog";
import { OwnCharts } from "./OwnCharts";
import type { Marking } from "./Plot";
import { SplitChart } from "./SplitChart";

interface Props {
  feed: MetricsFeed;
  view: ChartView;
  world: number;
  lossUnit: Unit;
  jobId: string;
  /** Has charts of its own, which everybody sees. */
  project: string;
  /** Seconds since the epoch. */
  startedAt: number;
  marking: Marking;
  byRank: RankComparison;
  /** Of a job that has not ended. */
  live: boolean;
  waitingFor: ReactNode;
  /** Where the numbers come from, if that needs to be known. */
  note?: string;
  onView(change: Partial<ChartView>): void;
}

export function Charts(props: Props) {
  const { feed, view, world, live, waitingFor, note, project, jobId, onView } = props;
  const source = feed.query;
  const refused = useRoleRefusal("member");
  const [edited, setEdited] = useState<OwnChart | null>(null);
  const names = source.data?.names ?? [];
  const whole = source.data !== undefined && feed.staleSince === null && !source.error && names.length > 0;
  return (
    <>
      <ChartToolbar
        view={view}
        axes={axesOf(names)}
        world={world}
        status={feed.status}
        newestStep={() => source.data?.extent?.to}
        onView={onView}
      >
        {names.length > 0 && (
          <Guarded refused={refused}>
            <Button
              size="compact-sm"
              variant="default"
              leftSection={<IconPlus size={13} />}
              onClick={() => setEdited(NEW_CHART)}
            >
              Add chart
            </Button>
          </Guarded>
        )}
      </ChartToolbar>
      {note && (
        <p className="muted" role="note">
          {note}
        </p>
      )}
      <div className="stack">
        {!whole && (
          <Panel label="Curves" flush>
            <PanelStates
              source={source}
              what="the curves"
              rows={6}
              staleSince={feed.staleSince}
              isEmpty={(store) => store.names.length === 0}
              empty={<EmptyState title={soFar("No curves", live)}>{waitingFor}</EmptyState>}
            >
              {() => null}
            </PanelStates>
          </Panel>
        )}
        {source.data && <BrowserCharts project={project} />}
        {source.data && <Grid {...props} store={source.data} onEdit={setEdited} />}
      </div>
      {edited && (
        <OwnChartDialog
          chart={edited}
          reported={names}
          project={project}
          jobId={jobId}
          onClose={() => setEdited(null)}
        />
      )}
    </>
  );
}

interface GridProps extends Pick<
  Props,
  "jobId" | "project" | "view" | "lossUnit" | "startedAt" | "marking" | "byRank" | "onView"
> {
  store: MetricsStore;
  onEdit(chart: OwnChart): void;
}

/** The project's own charts, those of the metrics that are known, and one for each other metric. */
function Grid({ jobId, project, store, view, lossUnit, startedAt, marking, byRank, onView, onEdit }: GridProps) {
  useStoreVersion(store);
  const onZoom = (range: StepRange | null) => onView({ from: range?.from, to: range?.to });
  const settings = settingsOf(view);
  const shared = { store, startedAt, settings, marking, byRank, onZoom };
  const charts = chartsFor(store.names, lossUnit);
  const taken = [...charts.map(({ title }) => title), SPLIT_TITLE];
  return (
    <div className={classes.grid}>
      <OwnCharts {...{ project, jobId, lossUnit, taken, onEdit }} {...shared} />
      {charts.map((chart) => (
        <CurveChart key={chart.id} jobId={jobId} chart={chart} {...shared} />
      ))}
      {store.names.includes("forward_seconds") && <SplitChart rank={view.rank ?? 0} {...shared} />}
    </div>
  );
}
