import { describe, expect, it } from "vitest";
import { failure } from "@/testing/fixtures";
import { decisionAfter, itsWords, lastLines, unseenTraceback, whatHappened } from "./failures";

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
      "Rank 1 on node-b was killed by SIGKILL",
      "Rank 1 on node-b raised DistBackendError",
      "Rank 1 on node-b ran out of memory",
      "Rank 1 on node-b exited with code 3",
      "Rank 1 on node-b ended: new kind",
    ]);
  });

  it("adds its words only where they say more", () => {
    expect(itsWords(failure())).toBe("");
    expect(itsWords(failure({ message: "boom", signal: null }))).toBe("boom");
    expect(
      itsWords(
        failure({ kind: "peer_lost", signal: null, message: "lost the connection to another rank: reset by peer" }),
      ),
    ).toBe("reset by peer");
  });

  it("says one sentence once: not again in the decision, nor as the last line", () => {
    const refused = failure({
      kind: "invalid_input",
      rank: 0,
      signal: null,
      message: "no such program: a.py",
      last_lines: ["no such program: a.py"],
    });
    expect(itsWords(refused)).toBe("no such program: a.py");
    expect(lastLines(refused)).toEqual([]);
    expect(decisionAfter(refused, "rank 0: no such program: a.py; restarting would not help")).toBe(
      "restarting would not help",
    );
    expect(decisionAfter(refused, "rank 1: killed by SIGKILL; rank 0 of 2 goes on")).toBe(
      "rank 1: killed by SIGKILL; rank 0 of 2 goes on",
    );
  });

  it("shows a traceback once: not again where the last lines end with it", () => {
    const traceback = "Traceback (most recent call last):\n  File x\nValueError: boom\n";
    expect(unseenTraceback(failure({ traceback, last_lines: ["before", "ValueError: boom", ""] }))).toBe("");
    expect(unseenTraceback(failure({ traceback, last_lines: ["before"] }))).toBe(traceback.trim());
    expect(lastLines(failure({ last_lines: ["a", "", " "] }))).toEqual(["a"]);
  });
});
