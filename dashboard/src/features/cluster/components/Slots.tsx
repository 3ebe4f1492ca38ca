import { Link } from "@tanstack/react-router";
import type { Node, SlotUse } from "@/lib/types";
import classes from "./Cluster.module.css";

/** Each slot, with the rank that uses it. */
export function Slots({ node }: { node: Node }) {
  if (node.slots.length === 0) return <p className={classes.note}>No slots.</p>;
  return (
    <ul className={classes.slots} aria-label={`Slots of ${node.name}`}>
      {node.slots.map((slot) => (
        <li key={slot.index}>
          <Slot slot={slot} />
        </li>
      ))}
    </ul>
  );
}

function Slot({ slot }: { slot: SlotUse }) {
  if (slot.job_id === null)
    return (
      <span className={classes.slot}>
        <span className={classes.slotIndex}>{slot.index}</span>free
      </span>
    );
  return (
    <Link to="/jobs/$jobId" params={{ jobId: slot.job_id }} className={classes.slot} data-used>
      <span className={classes.slotIndex}>{slot.index}</span>
      <span className={classes.slotJob}>{slot.job_name}</span>
      <span>rank {slot.rank}</span>
    </Link>
  );
}
