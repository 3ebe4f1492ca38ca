import { describe, expect, it } from "vitest";
import type { Event } from "@/lib/types";
import { countsByKind, entriesOf, kindsOf } from "./kinds";

let seq = 0;
function event(type: string, data: Record<string, unknown> = {}, kind: "user" | "system" | "node" = "system"): Event {
  seq += 1;
  return { seq, type, data, actor: { kind, name: "ada" }, message: type, time: "2026-11-20T10:00:00Z" } as Event;
}

const checkpoint = (state: string, id = "c1") =>
  event(`checkpoint.${state}`, { checkpoint_id: id, step: 50, state }, "node");

describe("events by kind", () => {
  it("are told by their type, and what a person did is a person's action too", () => {
    expect(kindsOf(event("job.closed_up"))).toEqual(["recoveries"]);
    expect(kindsOf(event("job.intent", {}, "user"))).toEqual(["other", "people"]);
    expect(kindsOf(checkpoint("committed"))).toEqual(["checkpoints"]);
  });

  it("are counted, and a type that is not known is not lost", () => {
    const counts = countsByKind([event("job.state"), event("job.state"), event("job.from_the_future")]);
    expect(counts).toMatchObject({ states: 2, other: 1, people: 0 });
  });
});

describe("entries of a history", () => {
  it("show the states of a checkpoint as one entry where it began, and other checkpoints apart", () => {
    const [a, b, c, d] = [checkpoint("committed"), event("job.state"), checkpoint("deleting"), checkpoint("deleted")];
    const other = checkpoint("committed", "c2");
    const entries = entriesOf([other, d, c, b, a]);
    expect(entries.map(({ event: { seq: place } }) => place)).toEqual([other.seq, b.seq, a.seq]);
    expect(entries.at(-1)!.later).toEqual([c, d]);
  });

  it("leave what a person did to a checkpoint by itself", () => {
    const pinned = event("checkpoint.deleting", { checkpoint_id: "c1", state: "deleting" }, "user");
    expect(entriesOf([pinned, checkpoint("committed")])).toHaveLength(2);
  });
});
