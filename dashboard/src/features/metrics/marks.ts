/** Marks on the curves: where something happened to the run. Pure. */

export interface Mark {
  /** The last step before it. */
  step: number;
  /** Beside the line: short. */
  label: string;
  /** An incident, or a new generation for which nothing went wrong. */
  kind: "incident" | "generation";
  /** What happened, as a sentence. */
  text: string;
}

/** A mark and its distance from the left edge of a chart and from the end of its lines, in whole pixels. */
export interface Placed {
  left: number;
  room: number;
  mark: Mark;
}

/** Marks that stand too close for a label each. */
export type MarkGroup = readonly [Placed, ...Placed[]];

/** Those within `gap` pixels of a group's first one belong to it. */
export function groupMarks(placed: readonly Placed[], gap: number): MarkGroup[] {
  const groups: [Placed, ...Placed[]][] = [];
  for (const one of [...placed].sort((a, b) => a.left - b.left)) {
    const open = groups.at(-1);
    if (open && one.left - open[0].left < gap) open.push(one);
    else groups.push([one]);
  }
  return groups;
}

export function kindOf(group: MarkGroup): Mark["kind"] {
  return group.some(({ mark }) => mark.kind === "incident") ? "incident" : "generation";
}

/** "G2", or "G2–G5" for those that stand together. */
export function labelOf(group: MarkGroup): string {
  const [first, last] = [group[0].mark.label, group.at(-1)!.mark.label];
  return first === last ? first : `${first}–${last}`;
}

export function samePlaces(a: readonly Placed[], b: readonly Placed[]): boolean {
  return (
    a.length === b.length &&
    a.every(
      ({ left, room, mark }, index) => left === b[index]!.left && room === b[index]!.room && mark === b[index]!.mark,
    )
  );
}
