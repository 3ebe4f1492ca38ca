import { Button, Select, Switch, TextInput } from "@mantine/core";
import { IconZoomReset } from "@tabler/icons-react";
import { StateBadge } from "@/components/ui/StateBadge";
import { numberOf } from "@/lib/numbers";
import type { StreamStatus } from "@/lib/stream";
import type { ChartView } from "../view";
import classes from "./Metrics.module.css";

interface Props {
  view: ChartView;
  world: number;
  status: StreamStatus;
  onView(change: Partial<ChartView>): void;
}

export function ChartToolbar({ view, world, status, onView }: Props) {
  const zoomed = view.from !== undefined || view.to !== undefined;
  return (
    <div className={classes.toolbar} role="group" aria-label="Chart settings">
      <Switch
        label="Log scale"
        checked={view.log ?? false}
        onChange={(event) => onView({ log: event.currentTarget.checked || undefined })}
      />
      <label>
        Smoothing
        <input
          type="range"
          className={classes.slider}
          min={0}
          max={0.99}
          step={0.01}
          value={view.smooth ?? 0}
          onChange={(event) => onView({ smooth: Number(event.currentTarget.value) || undefined })}
        />
        <span className="tabular">{(view.smooth ?? 0).toFixed(2)}</span>
      </label>
      <StepInput label="From step" value={view.from} onChange={(from) => onView({ from, to: view.to ?? from })} />
      <StepInput label="To step" value={view.to} onChange={(to) => onView({ to, from: view.from ?? 0 })} />
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
        {world > 1 && (
          <Select
            aria-label="Rank whose step time is shown"
            w={180}
            value={String(view.rank ?? 0)}
            allowDeselect={false}
            data={Array.from({ length: world }, (_, rank) => ({
              value: String(rank),
              label: `Step time of rank ${rank}`,
            }))}
            onChange={(rank) => onView({ rank: Number(rank) || undefined })}
          />
        )}
        <LiveBadge status={status} />
      </div>
    </div>
  );
}

function StepInput({
  label,
  value,
  onChange,
}: {
  label: string;
  value: number | undefined;
  onChange(step: number): void;
}) {
  const commit = (text: string) => {
    const step = numberOf(text);
    if (typeof step === "number" && Number.isInteger(step) && step >= 0 && step !== value) onChange(step);
  };
  return (
    <TextInput
      key={value}
      aria-label={label}
      placeholder={label}
      defaultValue={value}
      w={92}
      inputMode="numeric"
      onBlur={(event) => commit(event.currentTarget.value)}
      onKeyDown={(event) => event.key === "Enter" && commit(event.currentTarget.value)}
    />
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
