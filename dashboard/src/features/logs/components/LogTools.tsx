import { ActionIcon, Button, Select, Switch, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconDownload, IconRegex, IconSearch } from "@tabler/icons-react";
import { useState, type ReactNode } from "react";
import { ranksToChoose } from "@/lib/jobs";
import { CONTEXTS, LEVELS, logsDownloadPath, type Level, type LogFilter } from "../api/logs";

interface Props {
  jobId: string;
  /** The most ranks that the job has had. */
  world: number;
  filter: LogFilter;
  onFilter(change: Partial<LogFilter>): void;
  follow: boolean;
  onFollow(follow: boolean): void;
  wrap: boolean;
  onWrap(wrap: boolean): void;
  jump: ReactNode;
  /** Why the text that is searched for is no regular expression. */
  problem: string | undefined;
}

/** What is shown of a log, and how. */
export function LogTools({ jobId, world, filter, onFilter, follow, onFollow, wrap, onWrap, jump, problem }: Props) {
  const ranks = ranksToChoose(world, filter.rank).map((rank) => ({ value: String(rank), label: `Rank ${rank}` }));
  return (
    <>
      <SearchField filter={filter} onFilter={onFilter} problem={problem} />
      <Select
        aria-label="Filter by rank"
        placeholder="All ranks"
        w={112}
        clearable
        data={ranks}
        value={filter.rank?.toString() ?? null}
        onChange={(rank) => onFilter({ rank: rank === null ? undefined : Number(rank), line: undefined })}
      />
      <Select
        aria-label="Filter by level"
        placeholder="All levels"
        w={112}
        clearable
        data={[...LEVELS]}
        value={filter.level ?? null}
        onChange={(level) => onFilter({ level: (level ?? undefined) as Level | undefined, line: undefined })}
      />
      {jump}
      <Switch label="Wrap" checked={wrap} onChange={(event) => onWrap(event.currentTarget.checked)} />
      <Switch label="Follow" checked={follow} onChange={(event) => onFollow(event.currentTarget.checked)} />
      <Button
        component="a"
        href={logsDownloadPath(jobId)}
        download
        variant="default"
        leftSection={<IconDownload size={14} />}
      >
        Download
      </Button>
    </>
  );
}

const TYPING_PAUSE_MS = 300;

/** The text to search for, or the regular expression, and how many lines to show around each match. */
function SearchField({ filter, onFilter, problem }: Pick<Props, "filter" | "onFilter" | "problem">) {
  const [text, setText] = useState(filter.q ?? "");
  const [asked, setAsked] = useState(filter.q);
  if (filter.q !== asked) {
    // From elsewhere: all filters were cleared, or another address.
    setAsked(filter.q);
    setText(filter.q ?? "");
  }
  const search = useDebouncedCallback((typed: string) => {
    const q = typed || undefined;
    setAsked(q);
    onFilter({ q, line: undefined });
  }, TYPING_PAUSE_MS);
  const regex = filter.regex ?? false;
  return (
    <>
      <TextInput
        aria-label="Search logs"
        placeholder={regex ? "Regular expression" : "Search all lines"}
        w={210}
        leftSection={<IconSearch size={14} aria-hidden />}
        rightSection={
          <ActionIcon
            size={24}
            variant={regex ? "light" : "subtle"}
            color={regex ? undefined : "gray"}
            aria-label="Regular expression"
            title="Search for a regular expression"
            aria-pressed={regex}
            onClick={() => onFilter({ regex: !regex || undefined, line: undefined })}
          >
            <IconRegex size={15} />
          </ActionIcon>
        }
        value={text}
        error={problem}
        onChange={(event) => {
          setText(event.currentTarget.value);
          search(event.currentTarget.value);
        }}
      />
      {filter.q && (
        <Select
          aria-label="Lines around each match"
          placeholder="Matches only"
          w={140}
          clearable
          data={CONTEXTS.map((lines) => ({ value: String(lines), label: `± ${lines} lines` }))}
          value={filter.context?.toString() ?? null}
          onChange={(lines) => onFilter({ context: lines === null ? undefined : Number(lines), line: undefined })}
        />
      )}
    </>
  );
}
