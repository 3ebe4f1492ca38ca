import { Button, Group, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Dialog } from "./Dialog";
import { ErrorText } from "./ErrorText";

interface Props {
  opened: boolean;
  title: string;
  children: ReactNode;
  verb: string;
  /** The safe way out. */
  keep?: string;
  busy?: boolean;
  error?: unknown;
  onConfirm(): void;
  onClose(): void;
}

/** Before something is destroyed: names the object and the loss; the safe way out has the focus. */
export function Confirm({
  opened,
  title,
  children,
  verb,
  keep = "Cancel",
  busy = false,
  error,
  onConfirm,
  onClose,
}: Props) {
  return (
    <Dialog opened={opened} onClose={onClose} title={title} size="md">
      <Text size="sm" component="div">
        {children}
      </Text>
      {error ? (
        <Text size="sm" mt="sm" role="alert" c="var(--bad-text)">
          <ErrorText error={error} />
        </Text>
      ) : null}
      <Group justify="flex-end" mt="lg" gap="xs">
        <Button variant="default" onClick={onClose} data-autofocus>
          {keep}
        </Button>
        <Button color="red.8" loading={busy} onClick={onConfirm}>
          {verb}
        </Button>
      </Group>
    </Dialog>
  );
}
