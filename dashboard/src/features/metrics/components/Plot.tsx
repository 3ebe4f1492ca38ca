/** A uPlot in React: built when its structure changes, otherwise fed once per animation frame. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useEffectEvent, useRef, useState, type RefObject } from "react";
import { samePlaces, type Mark, type Placed } from "../marks";
import { placeMarks, type Range } from "../plot";
import type { MetricsStore } from "../store";
import { MarkLayer } from "./MarkLayer";
import classes from "./Metrics.module.css";

export interface Drawing {
  options: Omit<uPlot.Options, "width" | "height">;
  /** Called after the axes and lines are drawn. */
  onDraw?(plot: uPlot): void;
}

interface Props {
  /** Where new points come from; without it the chart is built anew when `structure` changes. */
  store?: Pick<MetricsStore, "subscribe">;
  /** Equal: updated in place. */
  structure: string;
  height: number;
  build(root: HTMLElement): Drawing;
  data(): uPlot.AlignedData;
  /** Along the x axis; null: everything. */
  onZoom(range: Range | null): void;
  /** Along the left axis; null: everything. Without it, the chart is zoomed along the x axis only. */
  onValueZoom?(range: Range | null): void;
  /** Where on the x axis the pointer is. */
  onCursor?(place: number | null): void;
  /** Where a mark stands on the x axis; where not said, at its step. */
  placeOf?(mark: Mark): number;
  /** The plot itself, for what is made from it. */
  drawn?: RefObject<uPlot | null>;
  title: string;
  sentence: string;
  marking?: Marking;
}

/** Dragging along the one axis zooms along that; from this many pixels on both, along both. */
const EITHER_WAY = { y: true, uni: 24 };
const STILL = { subscribe: () => () => {} };
const UNMARKED: Marking = { marks: [], onOpen: () => {} };

/** What happened to the run, and where more of it is told. */
export interface Marking {
  marks: readonly Mark[];
  onOpen(mark: Mark): void;
}

export function Plot({
  store = STILL,
  structure,
  height,
  build,
  data,
  onZoom,
  onValueZoom,
  onCursor,
  placeOf = stepOf,
  drawn: wanted,
  title,
  sentence,
  marking = UNMARKED,
}: Props) {
  const root = useRef<HTMLDivElement>(null);
  const own = useRef<uPlot>(null);
  const drawn = wanted ?? own;
  const [placed, setPlaced] = useState<readonly Placed[]>([]);
  const place = useEffectEvent((plot: uPlot) => {
    const now = placeMarks(plot, marking.marks, placeOf);
    setPlaced((before) => (samePlaces(before, now) ? before : now));
  });
  const make = useEffectEvent((element: HTMLElement) => {
    const { options, onDraw } = build(element);
    const hooks: uPlot.Hooks.Arrays = {
      draw: [
        (plot) => {
          onDraw?.(plot);
          place(plot);
          stamp(element, plot);
        },
      ],
      setSelect: [(plot) => select(plot, zoom, zoomValues)],
      setCursor: [(plot) => cursor(plot.cursor.idx == null ? null : (plot.data[0][plot.cursor.idx] ?? null))],
    };
    const drag = { ...options.cursor?.drag, ...(onValueZoom ? EITHER_WAY : {}) };
    const cursorOptions = { ...options.cursor, drag };
    const size = { width: element.clientWidth || 600, height };
    return new uPlot({ ...options, ...size, hooks, cursor: cursorOptions }, data(), element);
  });
  const current = useEffectEvent(data);
  const zoom = useEffectEvent(onZoom);
  const zoomValues = useEffectEvent((range: Range | null) => onValueZoom?.(range));
  const cursor = useEffectEvent((place: number | null) => onCursor?.(place));

  useEffect(() => {
    const element = root.current!;
    const plot = (drawn.current = make(element));
    const stop = feed(store, () => plot.setData(current()));
    const resize = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    const reset = () => {
      zoom(null);
      zoomValues(null);
    };
    plot.over.addEventListener("dblclick", reset);
    return () => {
      stop();
      resize.disconnect();
      plot.destroy();
      drawn.current = null;
    };
  }, [store, structure, height, drawn]);
  // A mark may come while nothing is drawn: a job that recovers reports no step.
  useEffect(() => {
    if (drawn.current) place(drawn.current);
  }, [marking.marks, drawn]);

  return (
    <div className={classes.frame}>
      <div
        ref={root}
        className={classes.plot}
        style={{ height }}
        role="img"
        aria-label={`${title}: ${sentence}`}
        data-chart
      />
      <MarkLayer placed={placed} label={`What happened: marks on ${title}`} onOpen={marking.onOpen} />
    </div>
  );
}

/** Runs `draw` in the next frame after any change; several changes make one frame. */
function feed(store: Pick<MetricsStore, "subscribe">, draw: () => void): () => void {
  let frame = 0;
  const unsubscribe = store.subscribe(() => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  });
  return () => {
    unsubscribe();
    cancelAnimationFrame(frame);
  };
}

/** The newest step on screen and when it got there: what the latency test reads. */
function stamp(element: HTMLElement, plot: uPlot): void {
  const newest = plot.data[0].at(-1);
  if (newest === undefined || element.dataset.lastStep === String(newest)) return;
  element.dataset.lastStep = String(newest);
  element.dataset.lastStepAt = String(Date.now());
}

const SMALLEST_DRAG_PX = 4;

function select(plot: uPlot, zoom: (range: Range) => void, zoomValues: (range: Range) => void): void {
  const { left, top, width, height } = plot.select;
  const whole = { width: plot.over.clientWidth, height: plot.over.clientHeight };
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  if (height >= SMALLEST_DRAG_PX && height < whole.height)
    zoomValues({ from: plot.posToVal(top + height, "y"), to: plot.posToVal(top, "y") });
  if (width >= SMALLEST_DRAG_PX && width < whole.width)
    zoom({ from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") });
}

function stepOf({ step }: Mark): number {
  return step;
}
