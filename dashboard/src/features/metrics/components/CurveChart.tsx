import type { ReactNode } from "react";
import type { Run } from "../axes";
import { linesFor, type ChartSpec } from "../catalog";
import type { DrawSettings } from "../lines";
import type { StepRange } from "../stepRange";
import type { MetricsStore } from "../store";
import { useStoreVersion } from "../useStoreVersion";
import { ByRank, type RankComparison } from "./ByRank";
import { CurveTable } from "./CurveTable";
import { LineChart } from "./LineChart";
import type { Marking } from "./Plot";

interface Props {
  jobId: string;
  chart: ChartSpec;
  store: MetricsStore;
  /** Seconds since the epoch. */
  startedAt: number;
  settings: DrawSettings;
  marking: Marking;
  byRank: RankComparison;
  /** The sentence tells every metric, not only the first. */
  tellAll?: boolean;
  onZoom(range: StepRange | null): void;
  /** Further entries of the menu. */
  children?: ReactNode;
}

/** Metrics of one run, as they come in. */
export function CurveChart(props: Props) {
  const { jobId, chart, store, startedAt, settings, marking, byRank, tellAll, onZoom, children } = props;
  useStoreVersion(store);
  const { axis } = settings;
  const run: Run = { startedAt, series: (name) => store.series(name), jobId };
  const read = () => linesFor(chart, run, axis);
  return (
    <LineChart
      title={chart.title}
      lines={read()}
      read={read}
      settings={settings}
      range={() => store.shownRange}
      store={store}
      marking={marking}
      tellAll={tellAll}
      onZoom={onZoom}
      table={(shown) => <CurveTable title={chart.title} lines={shown} marks={marking.marks} />}
    >
      <ByRank names={chart.names} {...byRank} />
      {children}
    </LineChart>
  );
}
