import { Select, Switch } from "@mantine/core";
import { AXIS_WORDS, type Axis } from "../axes";
import { SMOOTHING_KINDS, SMOOTHINGS, smoothingOf, type SmoothingKind } from "../smoothing";
import type { ChartView } from "../view";
import classes from "./Metrics.module.css";

interface Props {
  view: ChartView;
  /** Those that the shown runs allow. */
  axes: readonly Axis[];
  onView(change: Partial<ChartView>): void;
}

/** How all charts of a page are drawn: along which axis, on which scale, and how smooth. */
export function DrawControls({ view, axes, onView }: Props) {
  return (
    <>
      <span className={classes.control}>
        X axis
        <Select
          aria-label="X axis"
          w={110}
          value={view.axis ?? "step"}
          data={axes.map((axis) => ({ value: axis, label: AXIS_WORDS[axis].choice }))}
          allowDeselect={false}
          onChange={(axis) => onView({ axis: axis === "step" ? undefined : (axis as Axis) })}
        />
      </span>
      <Switch
        label="Log scale"
        checked={view.log ?? false}
        onChange={(event) => onView({ log: event.currentTarget.checked || undefined })}
      />
      <SmoothingControl view={view} onView={onView} />
    </>
  );
}

const NONE = "none";

function SmoothingControl({ view, onView }: Pick<Props, "view" | "onView">) {
  const smoothing = smoothingOf(view.smoothing, view.smooth);
  const choose = (kind: string | null) => {
    if (kind === null || kind === NONE) return onView({ smooth: undefined, smoothing: undefined });
    const { initial } = SMOOTHING_KINDS[kind as SmoothingKind];
    onView({ smooth: initial, smoothing: kind === "ema" ? undefined : (kind as SmoothingKind) });
  };
  return (
    <>
      <span className={classes.control}>
        Smoothing
        <Select
          aria-label="Smoothing"
          w={165}
          value={smoothing?.kind ?? NONE}
          data={[
            { value: NONE, label: "None" },
            ...SMOOTHINGS.map((kind) => ({ value: kind, label: SMOOTHING_KINDS[kind].label })),
          ]}
          allowDeselect={false}
          onChange={choose}
        />
      </span>
      {smoothing && (
        <label>
          {AMOUNTS[smoothing.kind]}
          <input
            type="range"
            className={classes.slider}
            min={SMOOTHING_KINDS[smoothing.kind].least}
            max={SMOOTHING_KINDS[smoothing.kind].most}
            step={SMOOTHING_KINDS[smoothing.kind].step}
            value={smoothing.amount}
            onChange={(event) => onView({ smooth: Number(event.currentTarget.value) })}
          />
          <span className="tabular">
            {smoothing.kind === "ema" ? smoothing.amount.toFixed(2) : `${smoothing.amount} points`}
          </span>
        </label>
      )}
    </>
  );
}

/** What the slider sets. */
const AMOUNTS: Readonly<Record<SmoothingKind, string>> = { ema: "Weight", gaussian: "Deviation", mean: "Window" };
