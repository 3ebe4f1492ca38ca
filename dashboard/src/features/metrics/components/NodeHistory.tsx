import { SegmentedControl, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { EmptyState, Panel, PanelStates } from "@/components/ui/Panel";
import { TableToggle } from "@/components/ui/TableToggle";
import { nodeMetricsQuery } from "../api/readings";
import { metricsOf, nodeLines, readingTitle, WINDOWS, type Window } from "../readings";
import { besideTitle, readingUnit } from "../units";
import { ReadingChart } from "./ReadingChart";

export interface HistoryView {
  node?: string;
  metric?: string;
  window?: Window;
}

interface Props {
  nodes: readonly { id: string; name: string }[];
  view: HistoryView;
  onView(view: HistoryView): void;
}

const LABELS: Readonly<Record<Window, string>> = { now: "10 min", hour: "Hour", day: "Day" };

/** One metric of a node, or of each of its cards, over the last minutes, hour or day. */
export function NodeHistory({ nodes, view, onView }: Props) {
  const [asTable, setAsTable] = useState(false);
  const node = nodes.find(({ id }) => id === view.node) ?? nodes[0]!;
  const window = view.window ?? "hour";
  const query = useQuery(nodeMetricsQuery(node.id, window));
  const names = query.data ? metricsOf(query.data) : [];
  const metric = names.find((name) => name === view.metric) ?? names[0] ?? "cpu_percent";
  const unit = readingUnit(query.data?.curves.find(({ name }) => name === metric)?.unit ?? "");
  return (
    <Panel
      label="Readings over time"
      title={
        <>
          <Select
            aria-label="Node"
            w={180}
            value={node.id}
            data={nodes.map(({ id, name }) => ({ value: id, label: name }))}
            allowDeselect={false}
            onChange={(chosen) => chosen && onView({ ...view, node: chosen })}
          />
          <Select
            aria-label="Reading"
            w={260}
            value={metric}
            data={[...new Set([...names, metric])].map((name) => ({ value: name, label: readingTitle(name) }))}
            allowDeselect={false}
            onChange={(chosen) => chosen && onView({ ...view, metric: chosen })}
          />
          <span className="hint">{besideTitle(unit)}</span>
        </>
      }
      actions={
        <>
          <SegmentedControl
            aria-label="Time"
            size="xs"
            value={window}
            data={(Object.keys(WINDOWS) as Window[]).map((value) => ({ value, label: LABELS[value] }))}
            onChange={(value) => onView({ ...view, window: value })}
          />
          <TableToggle pressed={asTable} onChange={setAsTable} what="Readings" />
        </>
      }
    >
      <PanelStates
        source={query}
        what="the readings"
        rows={5}
        isEmpty={({ curves }) => curves.length === 0}
        empty={
          <EmptyState title="No readings in this time">
            Agents of this version read their node and its cards once a second. Choose a longer time, or look at the
            node's heartbeat.
          </EmptyState>
        }
      >
        {(metrics) => (
          <ReadingChart
            metric={metric}
            unit={unit}
            lines={nodeLines(metrics, metric)}
            axis="time"
            asTable={asTable}
            drawn={`${node.id}|${window}|${query.dataUpdatedAt}`}
          />
        )}
      </PanelStates>
    </Panel>
  );
}
