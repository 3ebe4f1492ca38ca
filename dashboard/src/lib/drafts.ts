/**
 * Documents that were edited and not submitted, kept in this browser for the user who wrote them.
 *
 * A draft belongs to what it was begun from, written as in the address: `template:gpt_stdlib`, `from:JOB`.
 */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { keys } from "./keys";
import type { Me } from "./types";

export type DraftKind = "job" | "experiment";

export interface KeptDraft {
  source: string;
  text: string;
  /** When it was last changed, in milliseconds since 1970. */
  at: number;
}

const LONGEST_KEPT_MS = 30 * 24 * 3600 * 1000;

/** The drafts of one user and one kind of document. */
export class Drafts {
  readonly #prefix: string;

  constructor(
    userId: string,
    kind: DraftKind,
    private readonly storage: Storage = localStorage,
  ) {
    this.#prefix = `paceline-draft:${userId}:${kind}:`;
  }

  read(source: string): KeptDraft | null {
    const found = JSON.parse(this.storage.getItem(this.#prefix + source) ?? "null") as Omit<KeptDraft, "source"> | null;
    return found && { source, ...found };
  }

  /** Whether the browser had room for it. */
  keep(source: string, text: string, at = Date.now()): boolean {
    try {
      this.storage.setItem(this.#prefix + source, JSON.stringify({ text, at }));
      return true;
    } catch {
      return false;
    }
  }

  drop(source: string): void {
    this.storage.removeItem(this.#prefix + source);
  }

  /** The newest first; those that nobody came back to for a month are dropped. */
  list(now = Date.now()): KeptDraft[] {
    const sources = Object.keys(this.storage)
      .filter((key) => key.startsWith(this.#prefix))
      .map((key) => key.slice(this.#prefix.length));
    const all = sources.flatMap((source) => this.read(source) ?? []);
    for (const { source } of all.filter(({ at }) => now - at > LONGEST_KEPT_MS)) this.drop(source);
    return all.filter(({ at }) => now - at <= LONGEST_KEPT_MS).sort((a, b) => b.at - a.at);
  }
}

export function useDrafts(kind: DraftKind): Drafts {
  const userId = useQueryClient().getQueryData<Me | null>(keys.me)?.user_id ?? "";
  const [drafts] = useState(() => new Drafts(userId, kind));
  return drafts;
}
