import { Button, Group, Modal, NumberInput, Text } from "@mantine/core";
import { IconArrowsHorizontal } from "@tabler/icons-react";
import { useState } from "react";
import { asApiError } from "@/lib/errors";
import { plural } from "@/lib/format";
import type { Job } from "@/lib/types";
import { useResize } from "../api/resize";
import { MOST, sizesOf, whatResizingDoes, type Sizes } from "../resize";

/** Gives a job another size; says first what that does. */
export function ResizeControl({ job }: { job: Job }) {
  const [opened, setOpened] = useState(false);
  return (
    <>
      <Button variant="default" leftSection={<IconArrowsHorizontal size={14} />} onClick={() => setOpened(true)}>
        Resize
      </Button>
      <Modal
        opened={opened}
        onClose={() => setOpened(false)}
        title={`Resize ${job.name}`}
        centered
        size="md"
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <ResizeForm job={job} onDone={() => setOpened(false)} />
      </Modal>
    </>
  );
}

function ResizeForm({ job, onDone }: { job: Job; onDone(): void }) {
  const sizes = sizesOf(job);
  const { unit, now, least, most, slots } = sizes;
  const [size, setSize] = useState(now);
  const resize = useResize(job);
  const effect = whatResizingDoes(job, size);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        resize.mutate({ [unit]: size }, { onSuccess: onDone });
      }}
    >
      <NumberInput
        label={unit === "nodes" ? "Nodes" : "Slots"}
        description={limits(sizes)}
        value={size}
        min={least}
        max={most}
        clampBehavior="strict"
        allowDecimal={false}
        allowNegative={false}
        w={220}
        data-autofocus
        onChange={(value) => typeof value === "number" && setSize(value)}
      />
      <Text size="sm" mt="md" role="status">
        {effect ?? `The job has ${plural(now * slots, "rank")} now.`}
      </Text>
      {resize.error && (
        <Text size="sm" mt="sm" role="alert" c="var(--bad-text)">
          {asApiError(resize.error).message}
        </Text>
      )}
      <Group justify="flex-end" mt="lg" gap="xs">
        <Button variant="default" onClick={onDone}>
          Cancel
        </Button>
        <Button type="submit" disabled={effect === null} loading={resize.isPending}>
          Resize to {plural(size, unit === "nodes" ? "node" : "slot")}
        </Button>
      </Group>
    </form>
  );
}

function limits({ unit, least, most, slots }: Sizes): string {
  const range = most === MOST[unit] ? `${least} or more` : `${least} to ${most}`;
  return unit === "slots" ? `${range}, a rank for each` : `${range}, with ${plural(slots, "rank")} each`;
}
