import { Button, Group } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { GrowingTextarea } from "@/components/ui/GrowingTextarea";
import { Notice, Verbatim } from "@/components/ui/Notice";

interface Props {
  value: string;
  /** What somebody else has made of the notes while they were edited here; null: nobody has. */
  overtakenBy: string | null;
  onChange(notes: string): void;
  onReplace(): void;
  onTake(): void;
}

/** The notes of a job. Where two people edit them at once, both texts are in sight, and one has to be chosen. */
export function NotesField({ value, overtakenBy, onChange, onReplace, onTake }: Props) {
  return (
    <>
      <GrowingTextarea
        label="Notes"
        minRows={3}
        maxRows={12}
        maxLength={10_000}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
      {overtakenBy !== null && (
        <div role="alert">
          <Notice
            icon={IconAlertTriangle}
            tone="warn"
            label="Changed notes"
            title="Somebody changed the notes meanwhile."
          >
            {overtakenBy === "" ? <p>They are empty now.</p> : <Verbatim>{overtakenBy}</Verbatim>}
            <Group gap="xs" mt="xs">
              <Button size="xs" variant="default" onClick={onTake}>
                Discard mine
              </Button>
              <Button size="xs" variant="default" onClick={onReplace}>
                Replace theirs
              </Button>
            </Group>
          </Notice>
        </div>
      )}
    </>
  );
}
