import { Link } from "@tanstack/react-router";
import { howItEnded, itsWords, lastLines, unseenTraceback } from "@/lib/failures";
import { plural } from "@/lib/format";
import type { Failure } from "@/lib/types";
import classes from "./FailureDetails.module.css";

/**
 * What a rank left behind: the user's part of its traceback, all of it, and its last lines; folded, the other ranks.
 * Where it left nothing, its log may have more.
 */
export function FailureDetails({ jobId, failure, open = false }: { jobId: string; failure: Failure; open?: boolean }) {
  const lines = lastLines(failure);
  const whole = unseenTraceback(failure);
  const users = whole && (failure.users_traceback ?? "").trim();
  // A wrong configuration is not in the code that noticed it.
  const shown = failure.kind === "invalid_input" ? "" : users || whole;
  const victims = failure.victims ?? [];
  return (
    <>
      {shown && <Folded title="Traceback" text={shown} open={open} />}
      {whole && whole !== shown && <Folded title="Full traceback" text={whole} />}
      {lines.length > 0 && (
        <Folded
          title={`Last ${plural(lines.length, "line")} of rank ${failure.rank}`}
          text={lines.join("\n")}
          open={open && !shown}
        />
      )}
      {lines.length === 0 && !whole && (
        <Link
          className={classes.log}
          to="/jobs/$jobId"
          params={{ jobId }}
          search={{ tab: "logs", logRank: failure.rank } as never}
        >
          Log of rank {failure.rank}
        </Link>
      )}
      <Others title="with the same failure" ranks={victims.filter(({ share }) => share === "same")} />
      <Others title="with a different failure" ranks={victims.filter(({ share }) => share === "also")} />
      <Others
        title="that failed as a result"
        ranks={victims.filter(({ share }) => share !== "same" && share !== "also")}
      />
    </>
  );
}

/** The last lines say what happened. */
function showEnd(element: HTMLPreElement | null) {
  element?.scrollTo(0, element.scrollHeight);
}

function Folded({ title, text, open = false }: { title: string; text: string; open?: boolean }) {
  return (
    <details className={classes.details} open={open}>
      <summary>{title}</summary>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls must be reachable by keyboard */}
      <pre ref={showEnd} className={classes.lines} tabIndex={0} role="region" aria-label={title}>
        {text}
      </pre>
    </details>
  );
}

function Others({ title, ranks }: { title: string; ranks: readonly Failure[] }) {
  if (ranks.length === 0) return null;
  return (
    <details className={classes.details}>
      <summary>
        {plural(ranks.length, "rank")} {title}
      </summary>
      <ul className={classes.victims}>
        {ranks.map((rank) => (
          <li key={rank.rank}>
            Rank {rank.rank} on {rank.node_name} {howItEnded(rank)}
            {itsWords(rank) && <div className={classes.words}>{itsWords(rank)}</div>}
          </li>
        ))}
      </ul>
    </details>
  );
}
