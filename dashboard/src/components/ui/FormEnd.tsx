import { Button, Group, Text } from "@mantine/core";
import { ErrorText } from "./ErrorText";

interface Props {
  verb: string;
  work: { error: unknown; isPending: boolean };
  disabled: boolean;
  /** Labels of fields that the API calls something else. */
  labels?: Readonly<Record<string, string>>;
  onClose(): void;
}

/** The end of a form in a dialog: why the coordinator refused it, and its buttons. */
export function FormEnd({ verb, work, disabled, labels, onClose }: Props) {
  return (
    <>
      {work.error != null && (
        <Text size="sm" role="alert" c="var(--bad-text)">
          <ErrorText error={work.error} alone labels={labels} />
        </Text>
      )}
      <Group justify="flex-end" gap="xs">
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button type="submit" loading={work.isPending} disabled={disabled}>
          {verb}
        </Button>
      </Group>
    </>
  );
}
