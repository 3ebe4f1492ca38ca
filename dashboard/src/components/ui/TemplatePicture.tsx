import type { PictureName } from "@/lib/spec/choices";
import type { ReactNode } from "react";

const box = (x: number, y: number, width: number, height: number, soft = false) => (
  <rect key={`${x}/${y}`} x={x} y={y} width={width} height={height} rx="1.5" fillOpacity={soft ? 0.35 : 1} />
);
const line = (d: string) => <path d={d} fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round" />;

const PICTURES: Record<PictureName, ReactNode> = {
  layers: [4, 10, 16, 22].map((y) => box(5, y, 26, 4, y % 4 === 2)),
  dots: [6, 18, 30].flatMap((x) =>
    (x === 18 ? [5, 12, 19, 26] : [9, 22]).map((y) => <circle key={`${x}/${y}`} cx={x} cy={y} r="2.6" />),
  ),
  image: [0, 1, 2].flatMap((x) => [0, 1, 2].map((y) => box(7 + x * 8, 4 + y * 8, 6, 6, (x + y) % 2 === 1))),
  code: line("M13 8L5 16L13 24M23 8L31 16L23 24"),
  terminal: (
    <>
      {line("M7 9L14 16L7 23")}
      {line("M18 23H29")}
    </>
  ),
  replicas: [4, 20].flatMap((x) => [5, 12, 19].map((y) => box(x, y, 12, 5))),
  shards: [5, 12, 19].flatMap((y) => [box(4, y, 12, 5), box(20, y, 12, 5, true)]),
  columns: [4, 12, 20, 28].map((x, index) => box(x, 5, 5, 22, index % 2 === 1)),
  stages: [0, 1, 2].flatMap((stage) => [
    box(3 + stage * 11, 4 + stage * 8, 9, 6),
    box(3 + ((stage + 1) % 3) * 11, 4 + stage * 8, 9, 6, true),
  ]),
  squeeze: (
    <>
      {box(4, 5, 28, 6)}
      {box(10, 14, 16, 5, true)}
      {box(15, 22, 6, 5)}
    </>
  ),
  server: (
    <>
      {box(13, 4, 10, 8)}
      {line("M18 12L8 21M18 12L18 21M18 12L28 21")}
      {[8, 18, 28].map((x) => box(x - 4, 21, 8, 6, true))}
    </>
  ),
  curve: line("M4 6C10 22 16 25 32 26M4 12C10 24 16 20 32 19"),
};

/** What a template looks like at a glance: its model, or how it is cut over ranks. Drawn in the colour of the text. */
export function TemplatePicture({ name }: { name: PictureName }) {
  return (
    <svg width="36" height="32" viewBox="0 0 36 32" fill="currentColor" aria-hidden>
      {PICTURES[name]}
    </svg>
  );
}
