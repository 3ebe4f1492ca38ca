import classes from "./StateBadge.module.css";

export type Tone = "neutral" | "active" | "good" | "warn" | "bad";

const TONES: Record<string, Tone> = {
  queued: "neutral",
  starting: "active",
  running: "active",
  recovering: "warn",
  resizing: "active",
  stopping: "warn",
  paused: "warn",
  completed: "good",
  failed: "bad",
  cancelled: "neutral",
  assigned: "neutral",
  exited: "neutral",
  lost: "bad",
  parked: "neutral",
  released: "neutral",
  moved: "neutral",
  joining: "active",
  ready: "good",
  cordoned: "warn",
  draining: "warn",
  unreachable: "bad",
  gone: "neutral",
  committed: "good",
  superseded: "warn",
  damaged: "bad",
  deleting: "warn",
  deleted: "neutral",
  stopped: "warn",
  waiting: "neutral",
  refused: "warn",
  pruned: "neutral",
};
const MOVING = new Set(["starting", "running", "recovering", "resizing", "stopping", "joining", "draining"]);

/** A state with its colour, its shape and its word: never colour alone. An unknown state is neutral. */
export function StateBadge({ state, tone, children }: { state: string; tone?: Tone; children?: string }) {
  return (
    <span
      className={classes.badge}
      data-tone={tone ?? TONES[state] ?? "neutral"}
      data-moving={MOVING.has(state) || undefined}
    >
      <span className={classes.dot} aria-hidden />
      {children ?? state}
    </span>
  );
}
