import { Button } from "@mantine/core";
import { useState } from "react";
import { clock, count, dateTime } from "@/lib/format";
import type { LogEntry } from "@/lib/types";
import type { Search } from "../hits";
import { AnsiText } from "./AnsiText";
import classes from "./LogLines.module.css";

interface Props {
  line: LogEntry;
  linked: boolean;
  /** Whether the day is shown. */
  dated: boolean;
  /** What is searched for. */
  search?: Search;
  onLink(seq: number): void;
}

/** One line. Of all times only that of the linked line is a stop of the Tab key: a log has thousands. */
export function LogLine({ line, linked, dated, search, onLink }: Props) {
  const time = dated ? dateTime(line.time) : clock(line.time);
  return (
    <div
      className={classes.line}
      data-level={line.level}
      data-linked={linked || undefined}
      data-context={line.context || undefined}
    >
      <button
        type="button"
        className={classes.time}
        title={`${dateTime(line.time)}: link to this line`}
        aria-label={`${time}, link to line ${line.seq}`}
        tabIndex={linked ? 0 : -1}
        onClick={() => onLink(line.seq)}
      >
        {time}
      </button>
      <span
        className={classes.rank}
        data-rank={line.rank % 6}
        title={`rank ${line.rank}, generation ${line.generation}`}
      >
        {line.rank}
      </span>
      <span className={classes.text}>
        <LineText text={line.text} search={line.context ? undefined : search} />
      </span>
    </div>
  );
}

/** Of a longer line so much is shown: a line of a megabyte takes seconds to lay out. */
const MOST_CHARACTERS = 4_000;

/** The text of a line; of one that is very long the beginning, until all of it is asked for. */
function LineText({ text, search }: { text: string; search?: Search }) {
  const [whole, setWhole] = useState(false);
  if (text.length <= MOST_CHARACTERS) return <AnsiText text={text} search={search} />;
  return (
    <>
      <AnsiText text={whole ? text : text.slice(0, MOST_CHARACTERS)} search={search} />
      {!whole && "… "}
      <Button size="compact-xs" variant="default" onClick={() => setWhole(!whole)}>
        {whole ? "Show less" : `Show all ${count(text.length)} characters`}
      </Button>
    </>
  );
}
