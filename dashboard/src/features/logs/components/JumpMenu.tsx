import { Button, Group, Popover, TextInput } from "@mantine/core";
import { IconArrowBarToDown, IconArrowBarToUp, IconCornerDownRight } from "@tabler/icons-react";
import { useState, type FormEvent } from "react";
import { asApiError } from "@/lib/errors";
import { serverNow } from "@/lib/serverTime";
import { fetchLogs, type LogFilter, type LogPlace } from "../api/logs";
import { placeOf } from "../jumps";

interface Props {
  jobId: string;
  filter: LogFilter;
  /** The time of the newest line that is loaded: times without a day are before it. */
  newest: string | undefined;
  onLine(seq: number): void;
  onEnd(): void;
}

const EXAMPLES = "Write a line number, a time such as 14:05, or a date and time such as 2026-11-25 14:05.";

/** Goes to the start or the end of a log, to a line by its number, or to a time. */
export function JumpMenu({ jobId, filter, newest, onLine, onEnd }: Props) {
  const [opened, setOpened] = useState(false);
  const [text, setText] = useState("");
  const [error, setError] = useState<string | null>(null);
  const jump = async (place: LogPlace, missing: string) => {
    try {
      const page = await fetchLogs(jobId, filter, { ...place, limit: 1 });
      const line = page.items.find(({ context }) => !context);
      if (line === undefined) return setError(missing);
      setError(null);
      setOpened(false);
      onLine(line.seq);
    } catch (failure) {
      setError(asApiError(failure).message);
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const place = placeOf(text, new Date(newest ?? serverNow()));
    if (place === null) return setError(EXAMPLES);
    void jump(place, place.line === undefined ? "Nothing was printed at or after that time." : "The log is shorter.");
  };
  return (
    <Popover opened={opened} onChange={setOpened} trapFocus shadow="md" width={320}>
      <Popover.Target>
        <Button
          variant="default"
          leftSection={<IconCornerDownRight size={14} aria-hidden />}
          onClick={() => setOpened((open) => !open)}
        >
          Jump to
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <form onSubmit={submit} className="stack">
          <TextInput
            label="Line or time"
            placeholder="12345, 14:05 or 2026-11-25 14:05"
            value={text}
            error={error}
            data-autofocus
            onChange={(event) => {
              setText(event.currentTarget.value);
              setError(null);
            }}
            rightSectionWidth={48}
            rightSection={
              <Button type="submit" size="compact-xs">
                Go
              </Button>
            }
          />
          <Group gap="xs" grow>
            <Button
              variant="default"
              leftSection={<IconArrowBarToUp size={14} aria-hidden />}
              onClick={() => void jump({}, "No line matches.")}
            >
              Start
            </Button>
            <Button
              variant="default"
              leftSection={<IconArrowBarToDown size={14} aria-hidden />}
              onClick={() => {
                setOpened(false);
                onEnd();
              }}
            >
              End
            </Button>
          </Group>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}
