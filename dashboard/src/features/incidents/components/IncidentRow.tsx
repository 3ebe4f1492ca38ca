import { IconChevronRight } from "@tabler/icons-react";
import { useId, useState } from "react";
import { StackedBar } from "@/components/ui/StackedBar";
import { StateBadge, type Tone } from "@/components/ui/StateBadge";
import { itsWords } from "@/lib/failures";
import { clock, count, dateTime, MISSING, shortTime } from "@/lib/format";
import type { Incident } from "@/lib/types";
import { useNow } from "@/lib/useNow";
import {
  actionWords,
  backTo,
  cutShort,
  headline,
  isOpen,
  PHASES,
  phaseSentence,
  ranksAfter,
  stepsLost,
} from "../incidents";
import { IncidentDetails } from "./IncidentDetails";
import classes from "./Incidents.module.css";

interface Props {
  incident: Incident;
  /** When that was the truth: ages are counted from it, since the coordinator's clock may be another one. */
  readAt: number;
}

const TONES: Record<Incident["action"], Tone> = {
  closed_up: "good",
  fell_back: "neutral",
  restarted: "neutral",
  gave_up: "bad",
};

/** A fault in one line; unfolded, everything that is known of it. */
export function IncidentRow({ incident, readAt }: Props) {
  const [unfolded, setUnfolded] = useState(false);
  const details = useId();
  const what = headline(incident);
  const words = incident.culprit ? itsWords(incident.culprit) : "";
  return (
    <tbody className={classes.group}>
      <tr>
        <td className={classes.toggleCell}>
          <button
            type="button"
            className={classes.toggle}
            aria-expanded={unfolded}
            aria-controls={details}
            aria-label={`Details: ${what}`}
            onClick={() => setUnfolded(!unfolded)}
          >
            <IconChevronRight size={15} aria-hidden />
          </button>
        </td>
        <td>
          <time dateTime={incident.fault_at} title={dateTime(incident.fault_at)}>
            {clock(incident.fault_at)}
          </time>
        </td>
        <td className={classes.what}>
          <div className={classes.headline}>{what}</div>
          {words && <div className={classes.said}>{words}</div>}
          <div className={classes.under}>
            at step {count(incident.step)} of generation {incident.generation}
          </div>
        </td>
        <td>
          <Action incident={incident} />
        </td>
        <td>
          <Outage incident={incident} readAt={readAt} />
        </td>
        <td data-numeric data-wide>
          {stepsLost(incident)}
          {!!incident.seconds_lost && <div className={classes.under}>{shortTime(incident.seconds_lost)} of work</div>}
        </td>
        <td data-numeric data-wide>
          {ranksAfter(incident) ?? MISSING}
        </td>
      </tr>
      <tr id={details} hidden={!unfolded}>
        <td colSpan={7} className={classes.details}>
          {unfolded && <IncidentDetails incident={incident} />}
        </td>
      </tr>
    </tbody>
  );
}

function Action({ incident }: { incident: Incident }) {
  const open = isOpen(incident);
  const cut = cutShort(incident);
  const back = backTo(incident);
  return (
    <>
      <StateBadge state={open ? "recovering" : incident.action} tone={open ? "warn" : TONES[incident.action]}>
        {actionWords(incident)}
      </StateBadge>
      {back && <div className={classes.under}>{back}</div>}
      {cut && <div className={classes.under}>{cut}</div>}
    </>
  );
}

function Outage({ incident, readAt }: Props) {
  const parts = incident.phases.map(({ name, seconds }) => ({ name, value: seconds, color: PHASES[name].color }));
  return (
    <div className={classes.outage}>
      {isOpen(incident) ? (
        <RunningAge seconds={incident.age_seconds} readAt={readAt} />
      ) : (
        <span>{shortTime(incident.outage_seconds)}</span>
      )}
      <StackedBar size="sm" parts={parts} label={phaseSentence(incident)} />
    </div>
  );
}

const TICK_MS = 200;

/** How long it has lasted, running. */
export function RunningAge({ seconds, readAt }: { seconds: number; readAt: number }) {
  const age = seconds + Math.max(0, useNow(TICK_MS) - readAt) / 1000;
  return <span>{age < 60 ? `${age.toFixed(1)} s` : shortTime(age)} so far</span>;
}
