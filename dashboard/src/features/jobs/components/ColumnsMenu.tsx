import { Button, Checkbox, Popover } from "@mantine/core";
import { IconColumns3 } from "@tabler/icons-react";
import { COLUMN_IDS, COLUMNS, FIRST_COLUMNS, type ColumnId } from "../view";
import classes from "./JobFilters.module.css";

interface Props {
  shown: readonly ColumnId[];
  /** undefined: those that everybody begins with. */
  onChange(columns: ColumnId[] | undefined): void;
}

export function ColumnsMenu({ shown, onChange }: Props) {
  return (
    <Popover width={220} position="bottom-end" trapFocus hideDetached={false}>
      <Popover.Target>
        <Button variant="default" leftSection={<IconColumns3 size={14} />}>
          Columns
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label="Columns" className={classes.columns}>
        {COLUMN_IDS.map((id) => (
          <Checkbox
            key={id}
            size="xs"
            label={COLUMNS[id]}
            checked={shown.includes(id)}
            disabled={shown.length === 1 && shown[0] === id}
            onChange={(event) => {
              const on = event.currentTarget.checked;
              onChange(COLUMN_IDS.filter((other) => (other === id ? on : shown.includes(other))));
            }}
          />
        ))}
        <Button
          variant="default"
          size="compact-sm"
          disabled={String(shown) === String(FIRST_COLUMNS)}
          onClick={() => onChange(undefined)}
        >
          Reset
        </Button>
      </Popover.Dropdown>
    </Popover>
  );
}
