import Anser from "anser";
import classes from "./AnsiText.module.css";

/** Sets the title of a terminal, or makes a link: nothing that is shown. */
const OTHER_SEQUENCES = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g;

/** A text with the colours and styles that it sets by ANSI escape codes, in colours of the theme. */
export function AnsiText({ text }: { text: string }) {
  if (!text.includes("\u001b")) return text;
  const parts = Anser.ansiToJson(text.replaceAll(OTHER_SEQUENCES, ""), { use_classes: true, remove_empty: true });
  return parts.map(({ content, fg, decorations }, index) => (
    <span
      key={index}
      className={classes.part}
      data-color={fg || undefined}
      data-style={decorations.join(" ") || undefined}
    >
      {content}
    </span>
  ));
}
