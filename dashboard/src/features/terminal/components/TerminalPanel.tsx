import { Button, NativeSelect, TextInput } from "@mantine/core";
import { IconPlayerStop, IconTerminal2 } from "@tabler/icons-react";
import { lazy, Suspense, useId, useState } from "react";
import { Guarded } from "@/components/ui/Guarded";
import { EmptyState, Panel } from "@/components/ui/Panel";
import { useExecRefusal } from "@/lib/ownership";
import type { Job, Rank } from "@/lib/types";
import { wordsOf } from "@/lib/words";
import type { SessionEnd, Started } from "../api/session";
import classes from "./Terminal.module.css";

// xterm.js is larger than the rest of the page.
const TerminalScreen = lazy(() => import("./TerminalScreen"));

const ALIVE = new Set(["starting", "parked", "running"]);

interface Run {
  id: number;
  rank: number;
  command: readonly string[];
}

/** A shell, or a command, beside a rank of the job. */
export function TerminalPanel({ job }: { job: Job }) {
  const [run, setRun] = useState<Run | null>(null);
  const [started, setStarted] = useState<Started | null>(null);
  const [end, setEnd] = useState<SessionEnd | null>(null);
  const [ending, setEnding] = useState(false);
  const help = useId();

  const begin = (rank: number, command: readonly string[]) => {
    setStarted(null);
    setEnd(null);
    setEnding(false);
    setRun({ id: (run?.id ?? 0) + 1, rank, command });
  };

  return (
    <Panel title="Terminal" flush>
      {livingRanks(job).length === 0 && run === null ? (
        <EmptyState title="No rank runs">A terminal opens beside a rank while the job runs.</EmptyState>
      ) : (
        <StartForm job={job} open={run !== null && end === null} onStart={begin} onStop={() => setEnding(true)} />
      )}
      {run && (
        <div className={classes.session}>
          <p role="status" className={classes.status} data-tone={end ? toneOf(end) : undefined}>
            {statusOf(run, started, end)}
          </p>
          <Suspense fallback={<div className={classes.screen} />}>
            <TerminalScreen
              key={run.id}
              jobId={job.id}
              rank={run.rank}
              command={run.command}
              describedBy={help}
              ending={ending}
              onStarted={setStarted}
              onEnd={setEnd}
            />
          </Suspense>
        </div>
      )}
      <p id={help} className={classes.help}>
        It runs as the rank&apos;s user, with its variables, directory and limits, and what is run stands in the audit.
        Shift+F6 leaves the terminal by keyboard. Leaving this tab ends the session.
      </p>
    </Panel>
  );
}

interface FormProps {
  job: Job;
  /** A session is open. */
  open: boolean;
  onStart(rank: number, command: readonly string[]): void;
  onStop(): void;
}

function StartForm({ job, open, onStart, onStop }: FormProps) {
  const refused = useExecRefusal(job);
  const [chosen, setChosen] = useState("0");
  const [line, setLine] = useState("");
  const ranks = livingRanks(job);
  const words = wordsOf(line);
  const rank = ranks.some(({ rank: number }) => String(number) === chosen) ? chosen : String(ranks[0]?.rank ?? 0);
  return (
    <form
      className={classes.form}
      aria-label="Open a terminal"
      onSubmit={(event) => {
        event.preventDefault();
        if (refused === null && words !== null && ranks.length > 0 && !open) onStart(Number(rank), words);
      }}
    >
      <NativeSelect
        label="Rank"
        size="xs"
        value={rank}
        disabled={open}
        data={ranks.map(({ rank: number, node_name: node }) => ({
          value: String(number),
          label: `${number} on ${node}`,
        }))}
        onChange={(event) => setChosen(event.currentTarget.value)}
      />
      <TextInput
        className={classes.command}
        label="Command"
        placeholder="a shell"
        value={line}
        disabled={open}
        error={words === null ? "a quote is not closed" : undefined}
        spellCheck={false}
        autoCapitalize="none"
        onChange={(event) => setLine(event.currentTarget.value)}
      />
      {open ? (
        <Button variant="default" leftSection={<IconPlayerStop size={15} />} onClick={onStop}>
          End session
        </Button>
      ) : (
        <Guarded refused={refused}>
          <Button type="submit" leftSection={<IconTerminal2 size={15} />} disabled={ranks.length === 0}>
            Open terminal
          </Button>
        </Guarded>
      )}
    </form>
  );
}

function livingRanks({ ranks, generation }: Job): Rank[] {
  return (ranks ?? []).filter((rank) => ALIVE.has(rank.state) && rank.generation === generation);
}

function statusOf(run: Run, started: Started | null, end: SessionEnd | null): string {
  if (end === null)
    return started ? `${started.command.join(" ")} runs beside rank ${run.rank} on ${started.node}.` : "Starting...";
  if (end.exitCode === null) return end.message;
  return `Ended with exit code ${end.exitCode}.${end.message ? ` ${end.message}` : ""}`;
}

function toneOf({ exitCode }: SessionEnd): "good" | "warn" {
  return exitCode === 0 ? "good" : "warn";
}
