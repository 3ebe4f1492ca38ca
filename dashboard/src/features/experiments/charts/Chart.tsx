/** A drawing that is as wide as its panel, with axes; its words and its table say the same. */
import { useElementSize } from "@mantine/hooks";
import type { ReactNode } from "react";
import classes from "./Chart.module.css";
import type { Scale } from "./scale";

interface Props {
  /** All that the drawing says, for who cannot see it. */
  label: string;
  height: number;
  children(width: number): ReactNode;
}

/** Before the first measurement. */
const USUAL_WIDTH = 640;

export function Chart({ label, height, children }: Props) {
  const { ref, width } = useElementSize();
  const drawn = Math.max(width || USUAL_WIDTH, 240);
  return (
    <div ref={ref} className={classes.chart}>
      <svg role="img" aria-label={label} width="100%" height={height} viewBox={`0 0 ${drawn} ${height}`}>
        {children(drawn)}
      </svg>
    </div>
  );
}

/** Where a plot's own area stands within its drawing. */
export interface Area {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

interface AxisProps {
  scale: Scale;
  area: Area;
  write(value: number): string;
  title?: string;
}

export function YAxis({ scale, area, write, title }: AxisProps) {
  return (
    <g>
      {scale.ticks.map((tick) => (
        <g key={tick} transform={`translate(0 ${scale.place(tick).toFixed(1)})`}>
          <line className={classes.grid} x1={area.left} x2={area.right} />
          <text className={classes.tick} x={area.left - 8} dy="0.32em" textAnchor="end">
            {write(tick)}
          </text>
        </g>
      ))}
      {title && (
        <text className={classes.axis} x={area.left - 8} y={area.top - 12} textAnchor="start" dx={-area.left + 16}>
          {title}
        </text>
      )}
    </g>
  );
}

export function XAxis({ scale, area, write, title }: AxisProps) {
  return (
    <g>
      <line className={classes.base} x1={area.left} x2={area.right} y1={area.bottom} y2={area.bottom} />
      {scale.ticks.map((tick) => (
        <text
          key={tick}
          className={classes.tick}
          x={scale.place(tick)}
          y={area.bottom + 16}
          textAnchor={anchorAt(scale.place(tick), area)}
        >
          {write(tick)}
        </text>
      ))}
      {title && (
        <text className={classes.axis} x={(area.left + area.right) / 2} y={area.bottom + 33} textAnchor="middle">
          {title}
        </text>
      )}
    </g>
  );
}

const LABEL_PX = 14;

/** The first label begins where the drawing begins, the last one ends where it ends. */
function anchorAt(x: number, { left, right }: Area): "start" | "middle" | "end" {
  if (left < LABEL_PX && x - left < LABEL_PX) return "start";
  return right - x < LABEL_PX ? "end" : "middle";
}
