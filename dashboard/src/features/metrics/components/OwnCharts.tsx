import { Menu } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconArrowLeft, IconArrowRight, IconPencil, IconTrash } from "@tabler/icons-react";
import { useState } from "react";
import { Confirm } from "@/components/ui/Confirm";
import { useRoleRefusal } from "@/lib/ownership";
import { chartsQuery, useOrderCharts, useRemoveChart } from "../api/charts";
import { axesOf, SOURCES } from "../axes";
import { linesFor } from "../catalog";
import type { DrawSettings, Line } from "../lines";
import { drawnBy, movedBy, specOf, toldApart, type OwnChart } from "../ownCharts";
import { severalLines } from "../runs";
import type { StepRange } from "../stepRange";
import type { MetricsStore } from "../store";
import type { Unit } from "../units";
import { useDrawnRuns } from "../useDrawnRuns";
import { useStoreVersion } from "../useStoreVersion";
import { ByRank, type RankComparison } from "./ByRank";
import { CurveChart } from "./CurveChart";
import { LineChart } from "./LineChart";
import type { Marking } from "./Plot";
import { RunTable } from "./RunTable";

interface Props {
  project: string;
  jobId: string;
  store: MetricsStore;
  lossUnit: Unit;
  /** Seconds since the epoch. */
  startedAt: number;
  settings: DrawSettings;
  marking: Marking;
  byRank: RankComparison;
  /** Titles of the other charts of the page. */
  taken: readonly string[];
  onZoom(range: StepRange | null): void;
  onEdit(chart: OwnChart): void;
}

/** The charts of the project of which the job has reported something, in the order that its people gave them. */
export function OwnCharts({ project, taken, onEdit, ...rest }: Props) {
  const charts = useQuery(chartsQuery(project)).data ?? [];
  const [removed, setRemoved] = useState<OwnChart | null>(null);
  const ordering = useOrderCharts(project);
  const removal = useRemoveChart(project);
  const reported = new Set(rest.store.names);
  const ids = idsOf(charts);
  const shown = charts.filter(({ names }) => names.some((name) => reported.has(name)));
  const named = toldApart(shown, taken);
  return (
    <>
      {shown.map((chart, at) => (
        <OneChart key={chart.id} chart={named[at]!} {...rest}>
          <ChartEntries
            first={at === 0}
            last={at === shown.length - 1}
            onEdit={() => onEdit(chart)}
            onMove={(places) => ordering.mutate(movedBy(ids, idsOf(shown), chart.id!, places))}
            onRemove={() => {
              removal.reset();
              setRemoved(named[at]!);
            }}
          />
        </OneChart>
      ))}
      <Confirm
        opened={removed !== null}
        title={`Remove ${removed?.title ?? ""}?`}
        verb="Remove chart"
        busy={removal.isPending}
        error={removal.error}
        onConfirm={() => removal.mutate(removed!.id!, { onSuccess: () => setRemoved(null) })}
        onClose={() => setRemoved(null)}
      >
        It goes for everybody in project {project}. The numbers stay.
      </Confirm>
    </>
  );
}

function idsOf(charts: readonly OwnChart[]): string[] {
  return charts.flatMap(({ id }) => (id === null ? [] : [id]));
}

interface EntriesProps {
  first: boolean;
  last: boolean;
  onEdit(): void;
  onMove(places: 1 | -1): void;
  onRemove(): void;
}

function ChartEntries({ first, last, onEdit, onMove, onRemove }: EntriesProps) {
  const refused = useRoleRefusal("member");
  if (refused !== null)
    return (
      <>
        <Menu.Divider />
        <Menu.Label maw={220}>{refused}</Menu.Label>
      </>
    );
  return (
    <>
      <Menu.Divider />
      <Menu.Item leftSection={<IconPencil size={14} />} onClick={onEdit}>
        Edit chart
      </Menu.Item>
      {!first && (
        <Menu.Item leftSection={<IconArrowLeft size={14} />} onClick={() => onMove(-1)}>
          Move earlier
        </Menu.Item>
      )}
      {!last && (
        <Menu.Item leftSection={<IconArrowRight size={14} />} onClick={() => onMove(1)}>
          Move later
        </Menu.Item>
      )}
      <Menu.Item leftSection={<IconTrash size={14} />} onClick={onRemove}>
        Remove chart
      </Menu.Item>
    </>
  );
}

type OneChartProps = Omit<Props, "project" | "taken" | "onEdit"> & { chart: OwnChart; children: React.ReactNode };

function OneChart({ chart, ...props }: OneChartProps) {
  useStoreVersion(props.store);
  const settings = drawnBy(chart, props.settings, axesOf(props.store.names));
  if (chart.runs.some((id) => id !== props.jobId)) return <ChartOfRuns chart={chart} {...props} settings={settings} />;
  return <CurveChart {...props} chart={specOf(chart, props.lossUnit)} tellAll settings={settings} />;
}

/** The job of the page and others in one chart, each line named by its run. */
function ChartOfRuns(props: OneChartProps) {
  const { chart, jobId, store, lossUnit, startedAt, settings, marking, byRank, onZoom, children } = props;
  const ids = chart.runs.filter((id) => id !== jobId);
  const asked = [...new Set([...chart.names, ...SOURCES[settings.axis]])];
  const { runs, version } = useDrawnRuns(ids, asked, store.range);
  const spec = specOf(chart, lossUnit);
  const read = (): Line[] => {
    const own = linesFor(spec, { startedAt, series: (name) => store.series(name), jobId }, settings.axis);
    const others = severalLines(
      runs,
      chart.names,
      (name) => spec.units?.[name] ?? "",
      settings.axis,
      chart.names.length,
    );
    return [...own.map((line) => ({ ...line, label: `this job · ${line.label}` })), ...others];
  };
  return (
    <LineChart
      title={chart.title}
      lines={read()}
      read={read}
      settings={settings}
      range={() => store.shownRange}
      store={store}
      marking={marking}
      version={version}
      tellAll
      onZoom={onZoom}
      table={(shown) => <RunTable lines={shown} />}
    >
      <ByRank names={chart.names} {...byRank} />
      {children}
    </LineChart>
  );
}
