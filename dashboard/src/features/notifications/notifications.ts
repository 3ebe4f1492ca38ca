import { MISSING } from "@/lib/format";
import type { Delivery, NotificationChannel, NotificationEvent } from "@/lib/types";

export const KINDS = [
  { value: "webhook", label: "Webhook", hint: "Signed JSON to an address of yours." },
  { value: "slack", label: "Slack", hint: "An incoming webhook of Slack, or of a program that takes its form." },
  { value: "email", label: "E-mail", hint: "Plain text, by the mail server of the coordinator's settings." },
] as const;

export type ChannelKind = (typeof KINDS)[number]["value"];

export const EVENTS: readonly { value: NotificationEvent; label: string }[] = [
  { value: "failed", label: "Job failed" },
  { value: "finished", label: "Job finished" },
  { value: "cancelled", label: "Job cancelled" },
  { value: "degraded", label: "Job degraded by a fault" },
  { value: "nan", label: "Loss is NaN or infinite" },
  { value: "queued_long", label: "Queued longer than…" },
  { value: "goodput_low", label: "Goodput below…" },
  { value: "disk_low", label: "Coordinator's disk low" },
];

export const kindLabel = (kind: ChannelKind): string => KINDS.find(({ value }) => value === kind)!.label;

export const targetOf = ({ recipients, target }: NotificationChannel): string => recipients?.join(", ") || target;

/** What came of a delivery, in words. */
export function answerOf({ answer, digest_id: digest, state, attempts }: Delivery): string {
  if (digest && state === "pending") return "waits in a digest";
  if (answer === null) return attempts > 0 ? "no answer yet" : MISSING;
  const tries = attempts > 1 ? ` (attempt ${attempts})` : "";
  return `${digest ? "in a digest: " : ""}${answer}${tries}`;
}

/** E-mail addresses between commas, semicolons, spaces or lines. */
export const addressesIn = (text: string): string[] => [...new Set(text.split(/[\s,;]+/).filter(Boolean))];
