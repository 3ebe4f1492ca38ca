/** How a rank's end is told, in one place: the failure at the top of a page, the incident log and the marks on the curves say the same. */
import { FAILURE_WORDS } from "./constants.generated";
import type { Failure } from "./types";

/** "Rank 1 on node-b was killed by SIGKILL". */
export function whatHappened(failure: Failure): string {
  return `Rank ${failure.rank} on ${failure.node_name} ${howItEnded(failure)}`;
}

/** "Rank 1 on node-b raised KeyError in lookup at data.py:6": with the ranks of the same failure, and the line of the user's code. */
export function headline(failure: Failure): string {
  const same = (failure.victims ?? []).filter(({ share }) => share === "same");
  const [one] = same;
  const others =
    same.length > 1 ? ` and ${same.length} other ranks` : one ? ` and rank ${one.rank} on ${one.node_name}` : "";
  const ended = others ? howItEnded(failure).replace(/^was /, "were ") : howItEnded(failure);
  return `Rank ${failure.rank} on ${failure.node_name}${others} ${ended}${placeIn(failure.where)}`;
}

/** `lookup in data.py:6` -> " in lookup at data.py:6". */
function placeIn(where: string | undefined): string {
  if (!where) return "";
  const at = where.lastIndexOf(" in ");
  return at < 0 ? ` at ${where}` : ` in ${where.slice(0, at)} at ${where.slice(at + 4)}`;
}

export function howItEnded({ kind, signal, exception, exit_code, message }: Failure): string {
  if (FAILURE_WORDS[kind]) return FAILURE_WORDS[kind];
  if (signal) return `was killed by ${signal}`;
  if (message.startsWith("ended with code 0 while")) return "exited too early";
  if (exception) return `raised ${shortName(exception)}`;
  return exit_code == null ? `ended: ${kind.replaceAll("_", " ")}` : `exited with code ${exit_code}`;
}

/** What the rank said beyond `whatHappened`, or nothing. */
export function itsWords(failure: Failure): string {
  const said = `was ${failure.message}`.startsWith(howItEnded(failure)) ? "" : failure.message;
  return said.startsWith(howItEnded(failure)) ? said.slice(howItEnded(failure).length).replace(/^: /, "") : said;
}

/** What it printed last, unless that is nothing, or only its message. */
export function lastLines(failure: Failure): string[] {
  const lines = [...(failure.last_lines ?? [])];
  while (lines.length > 0 && lines.at(-1)!.trim() === "") lines.pop();
  return lines.join("\n").trim() === failure.message.trim() ? [] : lines;
}

/** What was decided, and why, without the message of the failure that stands before it. */
export function decisionAfter({ rank, message }: Failure, why: string): string {
  const told = `rank ${rank}: ${message}; `;
  return why.startsWith(told) ? why.slice(told.length) : why;
}

/** Its whole traceback, unless the last lines show it anyway. */
export function unseenTraceback(failure: Failure): string {
  const traceback = (failure.traceback ?? "").trim();
  const ending = traceback.split("\n").at(-1)!;
  return ending !== "" && lastLines(failure).includes(ending) ? "" : traceback;
}

/** `torch.distributed.DistBackendError` -> `DistBackendError`. */
function shortName(exception: string): string {
  return exception.slice(exception.lastIndexOf(".") + 1);
}
