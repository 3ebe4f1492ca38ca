import { Tooltip } from "@mantine/core";
import { IconAlertTriangleFilled } from "@tabler/icons-react";
import { useRef, useState, type KeyboardEvent } from "react";
import { groupMarks, kindOf, labelOf, titleOf, type Mark, type MarkGroup, type Placed } from "../marks";
import classes from "./Metrics.module.css";

interface Props {
  placed: readonly Placed[];
  label: string;
  onOpen(mark: Mark): void;
}

/** Room for one label. */
const GAP_PX = 56;
const MOST_TOLD = 6;

/** Lines over a chart with a button each, which says what happened there: one tab stop, arrows move. */
export function MarkLayer({ placed, label, onOpen }: Props) {
  const bar = useRef<HTMLDivElement>(null);
  const [chosen, setChosen] = useState(0);
  const groups = groupMarks(placed, GAP_PX);
  const stop = Math.min(chosen, groups.length - 1);
  const onKey = (event: KeyboardEvent) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = (stop + move + groups.length) % groups.length;
    setChosen(next);
    bar.current?.querySelectorAll("button")[next]?.focus();
  };
  if (groups.length === 0) return null;
  return (
    <>
      {placed.map(({ left, mark }, index) => (
        <span key={index} className={classes.line} data-kind={mark.kind} style={{ left }} aria-hidden />
      ))}
      <div ref={bar} role="toolbar" aria-label={label} tabIndex={-1} onKeyDown={onKey}>
        {groups.map((group, index) => (
          <MarkButton
            key={index}
            group={group}
            flipped={group[0].room < GAP_PX}
            tabIndex={index === stop ? 0 : -1}
            onOpen={onOpen}
          />
        ))}
      </div>
    </>
  );
}

interface ButtonProps {
  group: MarkGroup;
  /** There is no room to the right of the line. */
  flipped: boolean;
  tabIndex: number;
  onOpen(mark: Mark): void;
}

function MarkButton({ group, flipped, tabIndex, onOpen }: ButtonProps) {
  const kind = kindOf(group);
  const texts = group.map(({ mark }) => mark.text);
  const told = texts.slice(-MOST_TOLD);
  const first = group.find(({ mark }) => mark.kind === kind)!.mark;
  return (
    <Tooltip
      multiline
      w={300}
      events={{ hover: true, focus: true, touch: true }}
      label={<MarkTexts title={titleOf(group)} texts={told} more={texts.length - told.length} />}
    >
      <button
        type="button"
        className={classes.mark}
        data-kind={kind}
        data-flipped={flipped || undefined}
        style={{ left: group[0].left }}
        tabIndex={tabIndex}
        aria-label={`${labelOf(group)}${kind === "incident" ? " (recovered)" : ""}: ${told.join(" ")}`}
        onClick={() => onOpen(first)}
      >
        {kind === "incident" && <IconAlertTriangleFilled size={10} aria-hidden />}
        {labelOf(group)}
      </button>
    </Tooltip>
  );
}

function MarkTexts({ title, texts, more }: { title: string; texts: readonly string[]; more: number }) {
  return (
    <>
      <strong>{title}</strong>
      {more > 0 && <div>{more} before, and:</div>}
      {texts.map((text, index) => (
        <div key={index}>{text}</div>
      ))}
    </>
  );
}
