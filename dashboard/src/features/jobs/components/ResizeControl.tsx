import { Button, Group, Text } from "@mantine/core";
import { IconArrowsHorizontal } from "@tabler/icons-react";
import { useState } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorText } from "@/components/ui/ErrorText";
import { Guarded } from "@/components/ui/Guarded";
import { NumberField } from "@/components/ui/NumberField";
import { plural } from "@/lib/format";
import { wholeNumberProblem } from "@/lib/numbers";
import { useRoleRefusal } from "@/lib/ownership";
import type { Job } from "@/lib/types";
import { useResize } from "../api/resize";
import { MOST, sizesOf, whatResizingDoes, type Sizes } from "../resize";

/** Gives a job another size; says first what that does. */
export function ResizeControl({ job }: { job: Job }) {
  const [opened, setOpened] = useState(false);
  return (
    <>
      <Guarded refused={useRoleRefusal("member")}>
        <Button variant="default" leftSection={<IconArrowsHorizontal size={14} />} onClick={() => setOpened(true)}>
          Resize
        </Button>
      </Guarded>
      <Dialog opened={opened} onClose={() => setOpened(false)} title={`Resize ${job.name}`} size="md">
        <ResizeForm job={job} onDone={() => setOpened(false)} />
      </Dialog>
    </>
  );
}

function ResizeForm({ job, onDone }: { job: Job; onDone(): void }) {
  const sizes = sizesOf(job);
  const { unit, now, least, most, slots } = sizes;
  const [size, setSize] = useState<number | string | undefined>(now);
  const resize = useResize(job);
  const problem = size === undefined ? null : wholeNumberProblem(size, least, most);
  const wanted = typeof size === "number" && problem === null ? size : now;
  const effect = whatResizingDoes(job, wanted);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (effect !== null) resize.mutate({ [unit]: wanted }, { onSuccess: onDone });
      }}
    >
      <NumberField
        label={unit === "nodes" ? "Nodes" : "Slots"}
        description={limits(sizes)}
        value={size}
        error={problem}
        w={220}
        data-autofocus
        onValue={setSize}
      />
      <Text size="sm" mt="md" role="status">
        {effect ?? `The job has ${plural(now * slots, "rank")} now.`}
      </Text>
      {resize.error && (
        <Text size="sm" mt="sm" role="alert" c="var(--bad-text)">
          <ErrorText error={resize.error} />
        </Text>
      )}
      <Group justify="flex-end" mt="lg" gap="xs">
        <Button variant="default" onClick={onDone}>
          Cancel
        </Button>
        <Button type="submit" disabled={effect === null} loading={resize.isPending}>
          Resize to {plural(wanted, unit === "nodes" ? "node" : "slot")}
        </Button>
      </Group>
    </form>
  );
}

function limits({ unit, least, most, slots }: Sizes): string {
  const range = most === MOST[unit] ? `${least} or more` : `${least} to ${most}`;
  return unit === "slots" ? `${range}, a rank for each` : `${range}, with ${plural(slots, "rank")} each`;
}
