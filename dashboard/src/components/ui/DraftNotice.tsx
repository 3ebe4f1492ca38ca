import { useState } from "react";
import { clock, dateTime } from "@/lib/format";
import { Confirm } from "./Confirm";
import classes from "./Document.module.css";

interface Props {
  noun: string;
  /** When it was kept, in milliseconds since 1970. */
  at: number;
  onStartOver(): void;
}

const A_DAY_MS = 24 * 3600 * 1000;

/** Says that the page began with a draft, and leads back to what the draft was begun from. */
export function DraftNotice({ noun, at, onStartOver }: Props) {
  const [asking, setAsking] = useState(false);
  return (
    <p className={classes.draft} role="status">
      This is your draft of {Date.now() - at < A_DAY_MS ? clock(at) : dateTime(at)}, not yet submitted.{" "}
      <button type="button" className={classes.link} onClick={() => setAsking(true)}>
        Start over
      </button>
      <Confirm
        opened={asking}
        title="Discard your draft?"
        verb="Discard draft"
        keep="Keep editing"
        onClose={() => setAsking(false)}
        onConfirm={() => {
          setAsking(false);
          onStartOver();
        }}
      >
        The {noun} goes back to what you started from. Your changes to it are lost.
      </Confirm>
    </p>
  );
}
