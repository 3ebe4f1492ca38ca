import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { soFar } from "@/lib/jobs";
import { chartsFor } from "../catalog";
import type { MetricsStore, StepRange } from "../store";
import type { Unit } from "../units";
import type { MetricsFeed } from "../useMetricsFeed";
import { useStoreVersion } from "../useStoreVersion";
import type { ChartView } from "../view";
import classes from "./Metrics.module.css";
import { ChartToolbar } from "./ChartToolbar";
import { CurveChart } from "./CurveChart";
import type { Marking } from "./Plot";
import { SplitChart } from "./SplitChart";

interface Props {
  feed: MetricsFeed;
  view: ChartView;
  world: number;
  lossUnit: Unit;
  marking: Marking;
  /** Of a job that has not ended. */
  live: boolean;
  waitingFor: string;
  /** Where the numbers come from, if that needs to be known. */
  note?: string;
  onView(change: Partial<ChartView>): void;
}

export function Charts({ feed, view, world, lossUnit, marking, live, waitingFor, note, onView }: Props) {
  const source = feed.query;
  return (
    <>
      <ChartToolbar view={view} world={world} status={feed.status} onView={onView} />
      {note && (
        <p className="muted" role="note">
          {note}
        </p>
      )}
      {source.data === undefined || feed.staleSince !== null || source.error || source.data.names.length === 0 ? (
        <div className="stack">
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
          {source.data && (
            <Grid store={source.data} lossUnit={lossUnit} view={view} marking={marking} onView={onView} />
          )}
        </div>
      ) : (
        <Grid store={source.data} lossUnit={lossUnit} view={view} marking={marking} onView={onView} />
      )}
    </>
  );
}

function Grid({
  store,
  lossUnit,
  view,
  marking,
  onView,
}: {
  store: MetricsStore;
  lossUnit: Unit;
  view: ChartView;
  marking: Marking;
  onView(change: Partial<ChartView>): void;
}) {
  useStoreVersion(store);
  const zoom = (range: StepRange | null) => onView({ from: range?.from, to: range?.to });
  const settings = { log: view.log ?? false, smoothing: view.smooth ?? 0 };
  return (
    <div className={classes.grid}>
      {chartsFor(store.names, lossUnit).map((chart) => (
        <CurveChart key={chart.id} chart={chart} store={store} settings={settings} marking={marking} onZoom={zoom} />
      ))}
      {store.names.includes("forward_seconds") && (
        <SplitChart
          store={store}
          rank={view.rank ?? 0}
          smoothing={settings.smoothing}
          marking={marking}
          onZoom={zoom}
        />
      )}
    </div>
  );
}
