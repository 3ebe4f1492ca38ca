import { Button, Group, Modal, NumberInput, Text } from "@mantine/core";
import { IconArrowsHorizontal } from "@tabler/icons-react";
import { useState } from "react";
import { asApiError } from "@/lib/errors";
import { plural } from "@/lib/format";
import type { Job } from "@/lib/types";
import { useResize } from "../api/resize";
import { MOST_NODES, sizesOf, whatResizingDoes } from "../resize";

/** Gives a job another number of nodes; says first what that does. */
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
  const { now, least, most, slots } = sizesOf(job);
  const [nodes, setNodes] = useState(now);
  const resize = useResize(job);
  const effect = whatResizingDoes(job, nodes);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        resize.mutate(nodes, { onSuccess: onDone });
      }}
    >
      <NumberInput
        label="Nodes"
        description={limits(least, most, slots)}
        value={nodes}
        min={least}
        max={most}
        clampBehavior="strict"
        allowDecimal={false}
        allowNegative={false}
        w={220}
        data-autofocus
        onChange={(value) => typeof value === "number" && setNodes(value)}
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
          Resize to {plural(nodes, "node")}
        </Button>
      </Group>
    </form>
  );
}

function limits(least: number, most: number, slots: number): string {
  const range = most === MOST_NODES ? `${least} or more` : `${least} to ${most}`;
  return `${range}, with ${plural(slots, "rank")} on each`;
}
