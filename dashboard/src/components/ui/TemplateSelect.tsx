import { Select } from "@mantine/core";
import type { Choice } from "@/lib/spec/choices";
import classes from "./Document.module.css";
import { TemplatePicture } from "./TemplatePicture";

interface Props {
  templates: readonly Choice[];
  drafts: readonly Choice[];
  value: string | null;
  onChoose(source: string): void;
}

const DRAFT = "draft ";

/** The templates, each with a line about it, and the drafts that this browser keeps. */
export function TemplateSelect({ templates, drafts, value, onChoose }: Props) {
  const lines = new Map([
    ...templates.map(({ source, line }) => [source, line] as const),
    ...drafts.map(({ source, line }) => [DRAFT + source, line] as const),
  ]);
  const pictures = new Map(templates.map(({ source, picture }) => [source, picture]));
  return (
    <Select
      aria-label="Template"
      placeholder="Template"
      w={220}
      maxDropdownHeight={420}
      comboboxProps={{ width: 360, position: "bottom-end" }}
      data={[
        ...(drafts.length > 0
          ? [
              {
                group: "Your drafts",
                items: drafts.map(({ source, title }) => ({ value: DRAFT + source, label: title })),
              },
            ]
          : []),
        { group: "Templates", items: templates.map(({ source, title }) => ({ value: source, label: title })) },
      ]}
      renderOption={({ option }) => (
        <span className={classes.choice}>
          <span className={classes.picture}>
            {pictures.get(option.value) && <TemplatePicture name={pictures.get(option.value)!} />}
          </span>
          <span>
            {option.label}
            <span className={classes.line}>{lines.get(option.value)}</span>
          </span>
        </span>
      )}
      value={value}
      allowDeselect={false}
      onChange={(next) => next && onChoose(next.startsWith(DRAFT) ? next.slice(DRAFT.length) : next)}
    />
  );
}
