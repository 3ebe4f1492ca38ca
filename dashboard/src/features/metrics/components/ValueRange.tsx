import { Button, Group, Text } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { NumberField } from "@/components/ui/NumberField";
import type { Range } from "../plot";

interface Props {
  title: string;
  range: Range | null;
  /** Whether the axis is logarithmic. */
  log: boolean;
  onRange(range: Range | null): void;
  onClose(): void;
}

/** The values that a chart's axis shows, typed: what dragging over the chart does with a pointer. */
export function ValueRange({ title, range, log, onRange, onClose }: Props) {
  const [from, setFrom] = useState<number | string | undefined>(range?.from);
  const [to, setTo] = useState<number | string | undefined>(range?.to);
  const isUnplaced = log && typeof from === "number" && from <= 0;
  const valid = typeof from === "number" && typeof to === "number" && from < to && !isUnplaced;
  return (
    <Dialog onClose={onClose} title={`Value range of ${title}`} size="sm">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!valid) return;
          onRange({ from, to });
          onClose();
        }}
      >
        <Group grow align="start">
          <NumberField
            label="From"
            value={from}
            onValue={setFrom}
            error={isUnplaced && "On a log scale, enter a number above 0."}
            data-autofocus
          />
          <NumberField label="To" value={to} onValue={setTo} />
        </Group>
        <Text size="sm" c="var(--muted)" mt="xs">
          Enter two numbers, the smaller one first. You can also drag up or down over the chart.
        </Text>
        <Group justify="flex-end" mt="lg" gap="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" disabled={!valid}>
            Show these values
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
