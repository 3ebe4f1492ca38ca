import { ActionIcon } from "@mantine/core";
import { IconChartLine, IconTable } from "@tabler/icons-react";

export function TableToggle({
  pressed,
  onChange,
  what,
}: {
  pressed: boolean;
  onChange(pressed: boolean): void;
  what: string;
}) {
  return (
    <ActionIcon
      variant="subtle"
      color="gray"
      size="sm"
      aria-pressed={pressed}
      aria-label={`${what} as a table`}
      onClick={() => onChange(!pressed)}
    >
      {pressed ? <IconChartLine size={15} /> : <IconTable size={15} />}
    </ActionIcon>
  );
}
