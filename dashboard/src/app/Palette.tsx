import { Modal, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState, type KeyboardEvent } from "react";
import { DialogFocus, useFocusBefore } from "@/components/ui/DialogFocus";
import { experimentListQuery } from "@/features/experiments/api/experiments";
import { jobListQuery } from "@/features/jobs/api/jobs";
import classes from "./Shell.module.css";

interface Command {
  id: string;
  label: string;
  hint?: string;
  run(): void;
}

const TYPING_PAUSE_MS = 150;

/** Leads to every page, and to any job or experiment by its name. */
export function Palette({ opened, onClose }: { opened: boolean; onClose(): void }) {
  return opened && <OpenPalette onClose={onClose} />;
}

function OpenPalette({ onClose }: { onClose(): void }) {
  const before = useFocusBefore();
  return (
    <Modal.Root opened onClose={onClose} size="lg" yOffset="14vh" trapFocus={false}>
      <Modal.Overlay />
      <Modal.Content aria-label="Command palette">
        <Modal.Body p={0}>
          <DialogFocus before={before} />
          <PaletteBody onDone={onClose} />
        </Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}

function PaletteBody({ onDone }: { onDone(): void }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const commands = useCommands(text);
  const at = Math.min(chosen, commands.length - 1);
  const run = (command: Command | undefined) => {
    if (!command) return;
    onDone();
    command.run();
  };
  const onKey = (event: KeyboardEvent) => {
    const move = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (move) {
      event.preventDefault();
      setChosen((at + move + commands.length) % Math.max(1, commands.length));
    }
    if (event.key === "Enter") run(commands[at]);
  };
  return (
    <>
      <TextInput
        size="md"
        variant="unstyled"
        px="md"
        py={6}
        placeholder="Go to a page, a job or an experiment"
        aria-label="Command"
        data-autofocus
        value={text}
        role="combobox"
        aria-expanded
        aria-controls="palette-list"
        aria-activedescendant={commands[at] ? `palette-${commands[at].id}` : undefined}
        onChange={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={onKey}
      />
      <div id="palette-list" role="listbox" aria-label="Commands" className={classes.commands}>
        {commands.map((command, index) => (
          // eslint-disable-next-line jsx-a11y/click-events-have-key-events -- the keys are the combobox's
          <div
            key={command.id}
            id={`palette-${command.id}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === at}
            className={classes.command}
            onClick={() => run(command)}
            onMouseMove={() => setChosen(index)}
          >
            <span>{command.label}</span>
            <span className={classes.commandHint}>{command.hint}</span>
          </div>
        ))}
        {commands.length === 0 && <p className={classes.noCommand}>Nothing matches “{text}”.</p>}
      </div>
    </>
  );
}

function useCommands(text: string): Command[] {
  const navigate = useNavigate();
  const [q] = useDebouncedValue(text.trim(), TYPING_PAUSE_MS);
  const jobs = useQuery(jobListQuery({ q: q || undefined }));
  const experiments = useQuery(experimentListQuery({ q: q || undefined }));
  const pages: Command[] = [
    { id: "jobs", label: "Jobs", hint: "page", run: () => void navigate({ to: "/jobs", search: {} }) },
    {
      id: "running",
      label: "Running jobs",
      hint: "page",
      run: () => void navigate({ to: "/jobs", search: { status: ["running"] } }),
    },
    { id: "new", label: "New job", hint: "page", run: () => void navigate({ to: "/jobs/new", search: {} }) },
    { id: "compare", label: "Compare runs", hint: "page", run: () => void navigate({ to: "/compare", search: {} }) },
    {
      id: "experiments",
      label: "Experiments",
      hint: "page",
      run: () => void navigate({ to: "/experiments", search: {} }),
    },
    {
      id: "new-experiment",
      label: "New experiment",
      hint: "page",
      run: () => void navigate({ to: "/experiments/new", search: {} }),
    },
    { id: "cluster", label: "Cluster", hint: "page", run: () => void navigate({ to: "/cluster", search: {} }) },
    {
      id: "checkpoints",
      label: "Checkpoints of all jobs",
      hint: "page",
      run: () => void navigate({ to: "/checkpoints", search: {} }),
    },
    {
      id: "models",
      label: "Models: versions and aliases",
      hint: "page",
      run: () => void navigate({ to: "/models", search: {} }),
    },
    { id: "storage", label: "Storage", hint: "page", run: () => void navigate({ to: "/storage" }) },
    {
      id: "notifications",
      label: "Notifications",
      hint: "page",
      run: () => void navigate({ to: "/notifications", search: {} }),
    },
    { id: "people", label: "People", hint: "page", run: () => void navigate({ to: "/people", search: {} }) },
    {
      id: "audit",
      label: "Audit: who did what",
      hint: "page",
      run: () => void navigate({ to: "/people", search: { tab: "audit" } }),
    },
    {
      id: "add",
      label: "Add a node",
      hint: "action",
      run: () => void navigate({ to: "/cluster", search: { add: true } }),
    },
  ];
  const typed = (name: string) => name.toLowerCase().includes(text.trim().toLowerCase());
  const matching = pages.filter(({ label }) => typed(label));
  // The answer may still be the one to an earlier text: Enter must never open what does not match.
  const found = (jobs.data?.items ?? [])
    .filter(({ name }) => typed(name))
    .slice(0, 8)
    .map((job) => ({
      id: job.id,
      label: job.name,
      hint: `job, ${job.state}`,
      run: () => void navigate({ to: "/jobs/$jobId", params: { jobId: job.id }, search: {} }),
    }));
  const varied = (experiments.data?.items ?? [])
    .filter(({ name }) => typed(name))
    .slice(0, 4)
    .map(({ id, name, state }) => ({
      id,
      label: name,
      hint: `experiment, ${state}`,
      run: () => void navigate({ to: "/experiments/$experimentId", params: { experimentId: id }, search: {} }),
    }));
  return [...matching, ...found, ...varied];
}
