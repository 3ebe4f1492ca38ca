import { useDebouncedValue } from "@mantine/hooks";
import { useCallback, useMemo, useState } from "react";
import { parse, setField } from "./document";
import { validate, type Issue, type Path, type Schema } from "./schema";

const TYPING_PAUSE_MS = 350;

/** A YAML document being written, by the text or field by field, and what its schema finds wrong with it. */
export function useDocument(initial: string, schema: Schema | undefined) {
  const [text, setText] = useState(initial);
  const parsed = useMemo(() => parse(text), [text]);
  const local = useMemo<Issue[]>(
    () => (schema && parsed.value !== undefined ? validate(schema, parsed.value) : []),
    [schema, parsed],
  );
  const sound = parsed.problems.length === 0 && local.length === 0 && schema !== undefined;
  /** What is worth asking the coordinator about; null while it is typed or wrong. */
  const [settled] = useDebouncedValue(sound ? parsed.value : null, TYPING_PAUSE_MS);
  const set = useCallback((path: Path, value: unknown) => setText((old) => setField(old, path, value)), []);
  return { text, setText, set, value: parsed.value, problems: parsed.problems, local, sound, settled };
}
