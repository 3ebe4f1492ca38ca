import { IconZzz } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import { Notice } from "@/components/ui/Notice";
import { plural } from "@/lib/format";
import type { IdleCard } from "@/lib/types";
import { idleCardsQuery } from "../api/readings";

const MOST_JOBS = 8;
const MOST_NAMED = 8;

/** The cards of the cluster that jobs hold and leave idle, by job. */
export function IdleCards() {
  const { data } = useQuery(idleCardsQuery);
  const cards = data?.cards ?? [];
  if (cards.length === 0) return null;
  const jobs = [...new Map(cards.map((card) => [card.job_id, card])).values()];
  return (
    <Notice
      icon={IconZzz}
      label="Idle cards"
      tone="warn"
      title={`${plural(jobs.length, "job")} ${jobs.length === 1 ? "holds" : "hold"} ${plural(cards.length, "idle card")}`}
    >
      <p>
        Used for less than 5% of the last five minutes:{" "}
        {jobs.slice(0, MOST_JOBS).map(({ job_id: jobId, job_name: name }, index) => (
          <Fragment key={jobId}>
            {index > 0 && "; "}
            <Link to="/jobs/$jobId" params={{ jobId }} search={{ tab: "performance" }} className="inText">
              {name}
            </Link>{" "}
            {namesOf(cards.filter(({ job_id: holder }) => holder === jobId))}
          </Fragment>
        ))}
        {jobs.length > MOST_JOBS && `; and ${plural(jobs.length - MOST_JOBS, "more job")}`}.
      </p>
    </Notice>
  );
}

/** "card 3 of node-a (rank 1), card 4 of node-a (rank 2)". */
export function namesOf(cards: readonly Pick<IdleCard, "card" | "node_name" | "rank">[]): string {
  const named = cards
    .slice(0, MOST_NAMED)
    .map(({ rank, card, node_name: node }) => `card ${card} of ${node} (rank ${rank})`);
  return named.join(", ") + (cards.length > MOST_NAMED ? `, and ${cards.length - MOST_NAMED} more` : "");
}
