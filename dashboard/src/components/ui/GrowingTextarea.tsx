import { Textarea, type TextareaProps } from "@mantine/core";
import type { CSSProperties } from "react";
import classes from "./GrowingTextarea.module.css";

interface Props extends Omit<TextareaProps, "autosize" | "rows" | "classNames" | "styles"> {
  minRows: number;
  maxRows?: number;
}

/** Whether the browser itself makes a text area as tall as its text. Mantine measures it, for which the whole page is laid out at once. */
const GROWS_BY_ITSELF = typeof CSS !== "undefined" && Boolean(CSS.supports?.("field-sizing", "content"));

/** A text area as tall as its text, from `minRows` to `maxRows` lines. */
export function GrowingTextarea({ minRows, maxRows, ...props }: Props) {
  if (!GROWS_BY_ITSELF) return <Textarea {...props} autosize minRows={minRows} maxRows={maxRows} />;
  const lines = { "--min-rows": minRows, "--max-rows": maxRows } as CSSProperties;
  return <Textarea {...props} classNames={{ input: classes.growing }} styles={{ input: lines }} />;
}
