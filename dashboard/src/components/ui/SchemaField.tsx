import { Checkbox, Select, TextInput, type TextareaProps, type TextInputProps } from "@mantine/core";
import { IconHelpCircle } from "@tabler/icons-react";
import { useState } from "react";
import { Marked } from "@/components/ui/Marked";
import { NumberField } from "@/components/ui/NumberField";
import { sentence, title } from "@/lib/format";
import { fieldAt } from "@/lib/spec/fields";
import { issueOf } from "@/lib/spec/issues";
import { listField } from "@/lib/spec/lists";
import { linesOf, mapOf } from "@/lib/spec/maps";
import { useSpelling } from "@/lib/useSpelling";
import { isRecord, pointerOf, type Issue, type Path, type Resolved, type Schema } from "@/lib/spec/schema";
import { GrowingTextarea } from "./GrowingTextarea";
import classes from "./SchemaField.module.css";

/** The hint stands below its input, so that the inputs of a row are level. */
const LABEL_FIRST: ("label" | "input" | "description" | "error")[] = ["label", "input", "description", "error"];

interface Props {
  path: Path;
  /** In place of the name of the field, where that says too little. */
  label?: string;
  schema: Resolved;
  /** The address of its documentation. */
  docs?: string;
  /** Why it would change nothing, in place of what it does. */
  unused?: string | null;
  value: unknown;
  issues: readonly Issue[];
  onChange(path: Path, value: unknown): void;
}

/** One field of the spec as its schema says; empty means "the default", which is shown as the placeholder. */
export function SchemaField({ path, label, schema, docs, unused, value, issues, onChange }: Props) {
  const pointer = pointerOf(path);
  const error = issueOf(issues, pointer) ?? null;
  const list = listField(pointer, schema);
  const hint = [unused ?? schema.description, list?.hint].filter(Boolean).join(" ");
  const name = label ?? labelOf(String(path.at(-1)));
  const common = {
    label: <Label text={name} docs={docs} />,
    description: hint && !error?.includes(hint) ? <Marked text={hintOf(hint)} /> : undefined,
    error: error && <Marked text={error} />,
    name: pointer,
    ...fieldAt(pointer),
  };
  const field = { ...common, inputWrapperOrder: LABEL_FIRST };
  const placeholder = placeholderOf(schema.default);
  const set = (next: unknown) => onChange(path, next);
  const choices = choicesOf(schema);
  if (choices) {
    return (
      <Select
        {...field}
        data={choices.map(String)}
        value={value == null ? null : String(value)}
        placeholder={placeholder}
        clearable
        clearButtonProps={{ "aria-label": `Clear ${name}` }}
        onChange={(next) => set(choices.find((choice) => String(choice) === next))}
      />
    );
  }
  if (list) {
    const { read, write, multiline } = list;
    return (
      <TextField {...field} {...{ placeholder, multiline, read, write }} value={value ?? undefined} onValue={set} />
    );
  }
  const number = (
    <NumberField
      {...field}
      inputMode={schema.anyOf ? "text" : "decimal"}
      placeholder={placeholder}
      value={typeof value === "number" ? value : value == null ? undefined : String(value)}
      onValue={set}
    />
  );
  if (schema.anyOf?.some(isNumeric)) return number;
  switch (schema.type) {
    case "boolean":
      return (
        <Checkbox
          {...common}
          mt={22}
          checked={Boolean(value ?? schema.default)}
          onChange={(event) => set(event.currentTarget.checked)}
        />
      );
    case "integer":
    case "number":
      return number;
    case "object": {
      const read = (text: string) => valueOf(text, schema);
      return (
        <TextField
          {...field}
          description="One NAME=VALUE per line"
          multiline
          value={value ?? undefined}
          read={(text) => mapOf(text, read)}
          write={(map) => (isRecord(map) ? linesOf(map, read) : String(map))}
          onValue={set}
        />
      );
    }
    default:
      return (
        <PlainText
          {...field}
          placeholder={placeholder}
          value={value == null ? "" : String(value)}
          onChange={(event) => set(event.currentTarget.value || undefined)}
        />
      );
  }
}

/** A label, with a link to the documentation that F1 in the field opens as well. */
function Label({ text, docs }: { text: string; docs?: string }) {
  if (docs === undefined) return text;
  return (
    <>
      {text}
      <a
        className={classes.docs}
        href={docs}
        target="_blank"
        rel="noopener"
        title="Open the documentation (F1)"
        tabIndex={-1}
        aria-hidden
      >
        <IconHelpCircle size={13} />
      </a>
    </>
  );
}

/** Names of the spec that say too little by themselves. */
const LABELS: Record<string, string> = {
  lr: "Learning rate (lr)",
  dim: "Hidden size (dim)",
  eps: "Epsilon (eps)",
  betas: "Betas (2 numbers)",
  bucket_mb: "Bucket (MiB)",
  holdout: "Held-out fraction (holdout)",
};

function labelOf(name: string): string {
  return LABELS[name] ?? title(name);
}

/** A value or a field stays as it is written: "top_k: share of the elements", "auto: the most that fit". */
function hintOf(text: string): string {
  return /^\w+(, \w+)*:/.test(text) ? text : sentence(text);
}

/** The default as it would be typed. */
function placeholderOf(value: unknown): string | undefined {
  if (Array.isArray(value)) return value.join(", ") || undefined;
  return value == null ? undefined : JSON.stringify(value).replaceAll('"', "");
}

function isNumeric({ type }: Schema): boolean {
  return type === "integer" || type === "number";
}

/** A yes or no that may be left to the default has three answers, so it is no checkbox. */
function choicesOf(schema: Resolved): readonly unknown[] | null {
  if (schema.enum) return schema.enum;
  if (schema.const !== undefined) return [schema.const];
  return schema.type === "boolean" && schema.nullable ? [true, false] : null;
}

interface PlainTextProps extends Omit<TextInputProps & TextareaProps, "value" | "onChange"> {
  value: string;
  onChange(event: { currentTarget: { value: string } }): void;
}

/** A text of one line, or of several where it has them: then it stays so, since another input would lose the focus. */
function PlainText(props: PlainTextProps) {
  const [tall, setTall] = useState(false);
  if (!tall && props.value.includes("\n")) setTall(true);
  return tall ? <GrowingTextarea {...props} minRows={2} /> : <TextInput {...props} />;
}

interface TextFieldProps extends Omit<TextInputProps & TextareaProps, "value" | "onChange" | "onFocus" | "onBlur"> {
  value: unknown;
  multiline?: boolean;
  read(text: string): unknown;
  write(value: unknown): string;
  onValue(value: unknown): void;
}

/** Text that means a list or a map: taken over when the field is left, since half of one is none. */
function TextField({ value, multiline, read, write, onValue, ...common }: TextFieldProps) {
  const [edited, setEdited] = useState(false);
  const [text, setText] = useSpelling(value, read, write, edited);
  const props = {
    ...common,
    value: text,
    onChange: (event: { currentTarget: { value: string } }) => {
      setEdited(true);
      setText(event.currentTarget.value);
    },
    onBlur: () => {
      if (edited) onValue(read(text));
      setEdited(false);
    },
  };
  return multiline ? <GrowingTextarea {...props} minRows={2} /> : <TextInput {...props} />;
}

/** Where the schema allows more than text, numbers, true, false, null, lists and so on are written as in JSON. */
function valueOf(text: string, schema: Resolved): unknown {
  const { additionalProperties: rest } = schema;
  if (schema.patternProperties || (isRecord(rest) && rest.type === "string")) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
