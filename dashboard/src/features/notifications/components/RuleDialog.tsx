import { Checkbox, NativeSelect, SimpleGrid, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Dialog } from "@/components/ui/Dialog";
import { FormEnd } from "@/components/ui/FormEnd";
import { NumberField } from "@/components/ui/NumberField";
import { useMe } from "@/lib/me";
import type { NotificationChannel, NotificationEvent, NotificationRule } from "@/lib/types";
import { useSaveRule } from "../api/notifications";
import { EVENTS } from "../notifications";

type Typed = number | string | undefined;

/** Rounded, for 0.07 * 100 is 7.000000000000001. */
const percentOf = (share: number) => Number((share * 100).toPrecision(12));

interface Props {
  channels: NotificationChannel[];
  /** The rule that is changed; without one, a new one is made. */
  rule?: NotificationRule;
  onClose(): void;
}

/** A rule about what happens from now on. */
export function RuleDialog({ channels, rule, onClose }: Props) {
  const save = useSaveRule(rule?.id);
  const isAdmin = useMe()?.role === "admin";
  const [chosen, setChosen] = useState(rule?.channel_id);
  // The channels may come only after the dialog was opened, and that of a rule may have become one for admins.
  const channel = (channels.find(({ id }) => id === chosen) ?? channels[0])?.id ?? "";
  const [events, setEvents] = useState<NotificationEvent[]>(rule?.events ?? ["failed"]);
  const [project, setProject] = useState(rule?.project ?? "");
  const [mine, setMine] = useState(rule ? rule.owner_id !== null : !isAdmin);
  const [minutes, setMinutes] = useState<Typed>(rule?.queued_minutes ?? 30);
  const [percent, setPercent] = useState<Typed>(percentOf(rule?.goodput_below ?? 0.8));
  const aboutDisk = events.includes("disk_low");
  const waits = events.includes("queued_long");
  const loses = events.includes("goodput_low");
  const numbers = (!waits || typeof minutes === "number") && (!loses || typeof percent === "number");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    save.mutate(
      {
        channel,
        events,
        mine,
        project: project.trim() || null,
        queued_minutes: waits ? Number(minutes) : null,
        goodput_below: loses ? Number(percent) / 100 : null,
      },
      { onSuccess: onClose },
    );
  };
  return (
    <Dialog onClose={onClose} title={rule ? "Change rule" : "New rule"} size="lg">
      <form onSubmit={submit} className="stack">
        <NativeSelect
          label="Channel"
          data-autofocus
          value={channel}
          data={channels.map(({ id, name }) => ({ value: id, label: name }))}
          onChange={(event) => setChosen(event.currentTarget.value)}
        />
        <Checkbox.Group
          label="Tell it of"
          value={events}
          onChange={(chosen) => setEvents(chosen as NotificationEvent[])}
          required
        >
          <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="md" verticalSpacing="md" mt="xs">
            {EVENTS.filter(({ value }) => isAdmin || value !== "disk_low").map(({ value, label }) => (
              <Checkbox key={value} value={value} label={label} />
            ))}
          </SimpleGrid>
        </Checkbox.Group>
        {waits && <NumberField label="Minutes in the queue" value={minutes} onValue={setMinutes} w={220} required />}
        {loses && (
          <NumberField
            label="Goodput below, in percent"
            description="Useful step time of the time since the job got its slots; looked at from 10 minutes on."
            value={percent}
            onValue={setPercent}
            required
          />
        )}
        <TextInput
          label="Project"
          description="Only jobs of this project. Empty: of all projects."
          value={project}
          maxLength={63}
          error={
            aboutDisk && project.trim() !== "" ? "The disk is of no project: make a rule of its own for it." : null
          }
          onChange={(event) => setProject(event.currentTarget.value)}
        />
        <WhoseJobs rule={rule} mine={mine} onMine={setMine} />
        <FormEnd
          verb={rule ? "Save rule" : "Create rule"}
          work={save}
          disabled={events.length === 0 || channel === "" || !numbers}
          onClose={onClose}
        />
      </form>
    </Dialog>
  );
}

interface WhoseProps {
  rule?: NotificationRule;
  mine: boolean;
  onMine(mine: boolean): void;
}

function WhoseJobs({ rule, mine, onMine }: WhoseProps) {
  const me = useMe();
  const isAdmin = me?.role === "admin";
  const isAnothers = rule != null && rule.created_by_id !== me?.user_id;
  return (
    <Checkbox
      label={isAnothers ? `Only jobs of ${rule.created_by}` : "Only jobs that I submitted"}
      description={isAdmin ? undefined : "Rules about everybody's jobs are made by admins."}
      checked={mine}
      disabled={!isAdmin}
      onChange={(event) => onMine(event.currentTarget.checked)}
    />
  );
}
