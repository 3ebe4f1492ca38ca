import { useDebouncedValue } from "@mantine/hooks";
import { useCallback, useMemo, useState } from "react";
import { parse, setField } from "./document";
import { validate, type Issue, type Path, type Schema } from "./schema";

const TYPING_PAUSE_MS = 350;

/** A YAML document being written, by the text or field by field, and what its schema finds wrong with it. */
export function useDocument(initial: string, schema: Schema | undefined) {
  const [text, setText] = useState(initial);
  const [typed] = useDebouncedValue(text, TYPING_PAUSE_MS);
  const now = useReading(text, schema);
  const before = useReading(typed, schema);
  const { sound, value } = typed === text ? now : before;
  /** What is worth asking the coordinator about, once it is no longer typed; null: it is wrong. Only typing is waited for, not the schema. */
  const debounced = sound ? value : null;
  const set = useCallback((path: Path, value: unknown) => setText((old) => setField(old, path, value)), []);
  return { ...now, text, setText, set, debounced };
}

function useReading(text: string, schema: Schema | undefined) {
  const { value, problems } = useMemo(() => parse(text), [text]);
  const local = useMemo<Issue[]>(() => (schema && value !== undefined ? validate(schema, value) : []), [schema, value]);
  return { value, problems, local, sound: problems.length === 0 && local.length === 0 && schema !== undefined };
}
