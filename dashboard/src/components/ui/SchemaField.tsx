import { Checkbox, Select, TextInput, Textarea } from "@mantine/core";
import { useState } from "react";
import { NumberField } from "@/components/ui/NumberField";
import { title } from "@/lib/format";
import { issueAt } from "@/lib/spec/issues";
import { isRecord, pointerOf, type Issue, type Path, type Resolved, type Schema } from "@/lib/spec/schema";

/** The hint stands below its input, so that the inputs of a row are level. */
const LABEL_FIRST: ("label" | "input" | "description" | "error")[] = ["label", "input", "description", "error"];

interface Props {
  path: Path;
  /** In place of the name of the field, where that says too little. */
  label?: string;
  schema: Resolved;
  /** Why it would change nothing, in place of what it does. */
  unused?: string | null;
  value: unknown;
  issues: readonly Issue[];
  onChange(path: Path, value: unknown): void;
}

/** One field of the spec as its schema says; empty means "the default", which is shown as the placeholder. */
export function SchemaField({ path, label, schema, unused, value, issues, onChange }: Props) {
  const pointer = pointerOf(path);
  const common = {
    label: label ?? labelOf(String(path.at(-1))),
    description: unused ?? schema.description,
    error: issueAt(issues, pointer) ?? null,
    name: pointer,
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
        clearButtonProps={{ "aria-label": `Clear ${common.label}` }}
        onChange={(next) => set(choices.find((choice) => String(choice) === next))}
      />
    );
  }
  if (schema.anyOf) {
    const text = value == null ? "" : String(value);
    return (
      <TextInput
        {...field}
        placeholder={placeholder}
        value={text}
        onChange={(event) => set(amountOf(event.currentTarget.value, schema.anyOf!))}
      />
    );
  }
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
      return (
        <NumberField
          {...field}
          placeholder={placeholder}
          value={typeof value === "number" ? value : value == null ? undefined : String(value)}
          onValue={set}
        />
      );
    case "array":
      return (
        <TextField
          {...field}
          placeholder={placeholder}
          text={Array.isArray(value) ? value.join(", ") : ""}
          onText={(text) => set(listOf(text, schema))}
        />
      );
    case "object":
      return (
        <TextField
          {...field}
          description="One NAME=VALUE per line"
          multiline
          text={isRecord(value) ? linesOf(value) : ""}
          onText={(text) => set(mapOf(text, schema))}
        />
      );
    default:
      return (
        <TextInput
          {...field}
          placeholder={placeholder}
          value={typeof value === "string" ? value : value == null ? "" : String(value)}
          onChange={(event) => set(event.currentTarget.value || undefined)}
        />
      );
  }
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

/** The default as it would be typed. */
function placeholderOf(value: unknown): string | undefined {
  if (Array.isArray(value)) return value.join(", ") || undefined;
  return value == null ? undefined : JSON.stringify(value).replaceAll('"', "");
}

/** Where a number or a word may stand, digits alone are the number. */
function amountOf(text: string, options: readonly Schema[]): string | number | undefined {
  const takesNumbers = options.some(({ type }) => type === "integer" || type === "number");
  return takesNumbers && /^[0-9]+$/.test(text) ? Number(text) : text || undefined;
}

/** A yes or no that may be left to the default has three answers, so it is no checkbox. */
function choicesOf(schema: Resolved): readonly unknown[] | null {
  if (schema.enum) return schema.enum;
  if (schema.const !== undefined) return [schema.const];
  return schema.type === "boolean" && schema.nullable ? [true, false] : null;
}

interface TextFieldProps {
  label: string;
  description?: string;
  error: string | null;
  placeholder?: string;
  text: string;
  multiline?: boolean;
  inputWrapperOrder: typeof LABEL_FIRST;
  onText(text: string): void;
}

/** Text that means a list or a map: taken over when the field is left, so that typing is not rewritten. */
function TextField({ text, onText, multiline, ...common }: TextFieldProps) {
  const [typed, setTyped] = useState<string | null>(null);
  const props = {
    ...common,
    value: typed ?? text,
    onChange: (event: { currentTarget: { value: string } }) => setTyped(event.currentTarget.value),
    onBlur: () => {
      if (typed !== null) onText(typed);
      setTyped(null);
    },
  };
  return multiline ? <Textarea {...props} autosize minRows={2} /> : <TextInput {...props} />;
}

/** Where the schema wants texts, digits stay a text. */
function listOf(text: string, schema: Resolved): unknown[] | undefined {
  const items = text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean);
  const texts = schema.items?.type === "string";
  return items.length ? items.map((item) => (texts || Number.isNaN(Number(item)) ? item : Number(item))) : undefined;
}

function mapOf(text: string, schema: Resolved): Record<string, unknown> | undefined {
  const pairs = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => {
      const [name, ...value] = line.split("=");
      return [name!.trim(), valueOf(value.join("=").trim(), schema)] as const;
    });
  return pairs.length ? Object.fromEntries(pairs) : undefined;
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

function linesOf(value: Record<string, unknown>): string {
  return Object.entries(value)
    .map(([name, entry]) => `${name}=${typeof entry === "string" ? entry : JSON.stringify(entry)}`)
    .join("\n");
}
