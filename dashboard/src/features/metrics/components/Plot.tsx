/** A uPlot in React: built when its structure changes, otherwise fed once per animation frame. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useEffectEvent, useRef, useState } from "react";
import { samePlaces, type Mark, type Placed } from "../marks";
import { placeMarks } from "../plot";
import type { MetricsStore, StepRange } from "../store";
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
  onZoom(range: StepRange | null): void;
  onCursor?(step: number | null): void;
  title: string;
  sentence: string;
  marking?: Marking;
}

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
  onCursor,
  title,
  sentence,
  marking = UNMARKED,
}: Props) {
  const root = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot>(null);
  const [placed, setPlaced] = useState<readonly Placed[]>([]);
  const place = useEffectEvent((plot: uPlot) => {
    const now = placeMarks(plot, marking.marks);
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
      setSelect: [(plot) => select(plot, zoom)],
      setCursor: [(plot) => cursor(plot.cursor.idx == null ? null : (plot.data[0][plot.cursor.idx] ?? null))],
    };
    return new uPlot({ ...options, hooks, width: element.clientWidth || 600, height }, data(), element);
  });
  const current = useEffectEvent(data);
  const zoom = useEffectEvent(onZoom);
  const cursor = useEffectEvent((step: number | null) => onCursor?.(step));

  useEffect(() => {
    const element = root.current!;
    const plot = (drawn.current = make(element));
    const stop = feed(store, () => plot.setData(current()));
    const resize = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    const reset = () => zoom(null);
    plot.over.addEventListener("dblclick", reset);
    return () => {
      stop();
      resize.disconnect();
      plot.destroy();
      drawn.current = null;
    };
  }, [store, structure, height]);
  // A mark may come while nothing is drawn: a job that recovers reports no step.
  useEffect(() => {
    if (drawn.current) place(drawn.current);
  }, [marking.marks]);

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

function select(plot: uPlot, zoom: (range: StepRange) => void): void {
  const { left, width } = plot.select;
  if (width < SMALLEST_DRAG_PX) return;
  const from = Math.floor(plot.posToVal(left, "x"));
  const to = Math.ceil(plot.posToVal(left + width, "x"));
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  zoom({ from: Math.max(0, from), to });
}
