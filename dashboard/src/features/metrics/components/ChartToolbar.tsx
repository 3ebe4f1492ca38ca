import { Button, Select } from "@mantine/core";
import { IconZoomReset } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { StateBadge } from "@/components/ui/StateBadge";
import { ranksToChoose } from "@/lib/jobs";
import type { StreamStatus } from "@/lib/stream";
import type { Axis } from "../axes";
import type { ChartView } from "../view";
import { DrawControls } from "./DrawControls";
import classes from "./Metrics.module.css";
import { StepRangeFields } from "./StepRangeFields";

interface Props {
  view: ChartView;
  /** Those that the job's metrics allow. */
  axes: readonly Axis[];
  /** The most ranks that the job has had. */
  world: number;
  status: StreamStatus;
  /** The last step of what is loaded. */
  newestStep(): number | undefined;
  onView(change: Partial<ChartView>): void;
  /** Further controls, at the end. */
  children?: ReactNode;
}

export function ChartToolbar({ view, axes, world, status, newestStep, onView, children }: Props) {
  const ranks = ranksToChoose(world, view.rank);
  const zoomed = view.from !== undefined || view.to !== undefined;
  return (
    <div className={classes.toolbar} role="group" aria-label="Chart settings">
      <DrawControls view={view} axes={axes} onView={onView} />
      <StepRangeFields view={view} newestStep={() => (zoomed ? undefined : newestStep())} onView={onView} />
      {zoomed && (
        <Button
          size="compact-xs"
          variant="default"
          leftSection={<IconZoomReset size={13} />}
          onClick={() => onView({ from: undefined, to: undefined })}
        >
          Whole run
        </Button>
      )}
      <div className={classes.end}>
        {ranks.length > 1 && (
          <Select
            aria-label="Rank whose step time is shown"
            w={180}
            value={String(view.rank ?? 0)}
            allowDeselect={false}
            data={ranks.map((rank) => ({ value: String(rank), label: `Step time of rank ${rank}` }))}
            onChange={(rank) => onView({ rank: Number(rank) || undefined })}
          />
        )}
        {children}
        <LiveBadge status={status} />
      </div>
    </div>
  );
}

function LiveBadge({ status }: { status: StreamStatus }) {
  if (status === "live")
    return (
      <StateBadge state="live" tone="good">
        live
      </StateBadge>
    );
  if (status === "closed") return null;
  return (
    <StateBadge state={status} tone="warn">
      {status === "waiting" ? "reconnecting" : "connecting"}
    </StateBadge>
  );
}
