import Anser from "anser";
import type { ReactNode } from "react";
import { hitsIn, type Hit, type Search } from "../hits";
import classes from "./AnsiText.module.css";

/** Sets the title of a terminal, or makes a link: nothing that is shown. */
const OTHER_SEQUENCES = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g;

interface Props {
  text: string;
  /** What is searched for, and marked. */
  search?: Search;
}

/** A text with the colours and styles that it sets by ANSI escape codes, in colours of the theme. */
export function AnsiText({ text, search }: Props) {
  if (!text.includes("\u001b")) return marked(text, 0, hitsIn(text, search));
  const parts = Anser.ansiToJson(text.replaceAll(OTHER_SEQUENCES, ""), { use_classes: true, remove_empty: true });
  const hits = hitsIn(parts.map(({ content }) => content).join(""), search);
  let start = 0;
  return parts.map(({ content, fg, decorations }, index) => {
    const from = start;
    start += content.length;
    return (
      <span
        key={index}
        className={classes.part}
        data-color={fg || undefined}
        data-style={decorations.join(" ") || undefined}
      >
        {marked(content, from, hits)}
      </span>
    );
  });
}

/** A part of a line, which begins at `start` of it, with what of the hits is in it. */
function marked(content: string, start: number, hits: readonly Hit[]): ReactNode {
  const end = start + content.length;
  const inside = hits.filter(([from, to]) => from < end && to > start);
  if (inside.length === 0) return content;
  const pieces: ReactNode[] = [];
  let at = start;
  for (const hit of inside) {
    const [from, to] = [Math.max(hit[0], start), Math.min(hit[1], end)];
    pieces.push(content.slice(at - start, from - start));
    pieces.push(
      <mark key={from} className={classes.hit}>
        {content.slice(from - start, to - start)}
      </mark>,
    );
    at = to;
  }
  return [...pieces, content.slice(at - start)];
}
