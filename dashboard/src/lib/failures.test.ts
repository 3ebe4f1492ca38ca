import { describe, expect, it } from "vitest";
import { failure } from "@/testing/fixtures";
import { itsWords, lastLines, unseenTraceback, whatHappened } from "./failures";

describe("a rank's end", () => {
  it("is told by what ended it", () => {
    const told = [
      failure(),
      failure({ kind: "exception", signal: null, exception: "torch.distributed.DistBackendError" }),
      failure({ kind: "out_of_memory", signal: "SIGKILL" }),
      failure({ kind: "exit", signal: null, exit_code: 3 }),
      failure({ kind: "new_kind", signal: null }),
    ].map(whatHappened);
    expect(told).toEqual([
      "Rank 1 on node-b was killed by SIGKILL", "Rank 1 on node-b raised DistBackendError", "Rank 1 on node-b ran out of memory",
      "Rank 1 on node-b exited with code 3", "Rank 1 on node-b ended: new kind",
    ]);
  });

  it("adds its words only where they say more", () => {
    expect(itsWords(failure())).toBe("");
    expect(itsWords(failure({ message: "boom", signal: null }))).toBe("boom");
    expect(itsWords(failure({ kind: "peer_lost", signal: null, message: "lost the connection to another rank: reset by peer" }))).toBe("reset by peer");
  });

  it("shows a traceback once: not again where the last lines end with it", () => {
    const traceback = "Traceback (most recent call last):\n  File x\nValueError: boom\n";
    expect(unseenTraceback(failure({ traceback, last_lines: ["before", "ValueError: boom", ""] }))).toBe("");
    expect(unseenTraceback(failure({ traceback, last_lines: ["before"] }))).toBe(traceback.trim());
    expect(lastLines(failure({ last_lines: ["a", "", " "] }))).toEqual(["a"]);
  });
});
