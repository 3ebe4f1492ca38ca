/** Marks on the curves: where something happened to the run. Pure. */

export interface Mark {
  /** The last step before it. */
  step: number;
  /** The generation that begins there. */
  generation: number;
  /** The job ended there, in that generation. */
  ends?: boolean;
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

/** Beside the line: "Gen 2", or "Gen 2–5" for those that stand together. */
export function labelOf(group: MarkGroup): string {
  const [first, last] = endsOf(group);
  if (first.ends) return "End";
  if (last.ends) return `Gen ${first.generation}–end`;
  return first === last ? `Gen ${first.generation}` : `Gen ${first.generation}–${last.generation}`;
}

/** The same in full: "Generations 2–5 (recovered)". */
export function titleOf(group: MarkGroup): string {
  const [first, last] = endsOf(group);
  if (first.ends) return "End of the job";
  const one = first.generation === last.generation;
  const what = one ? `Generation ${first.generation}` : `Generations ${first.generation}–${last.generation}`;
  if (last.ends) return `${what} and the end of the job`;
  return kindOf(group) === "incident" ? `${what} (recovered)` : what;
}

function endsOf(group: MarkGroup): [Mark, Mark] {
  return [group[0].mark, group.at(-1)!.mark];
}

export function samePlaces(a: readonly Placed[], b: readonly Placed[]): boolean {
  return (
    a.length === b.length &&
    a.every(
      ({ left, room, mark }, index) => left === b[index]!.left && room === b[index]!.room && mark === b[index]!.mark,
    )
  );
}
