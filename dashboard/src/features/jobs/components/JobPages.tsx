import { Button } from "@mantine/core";
import { count, plural } from "@/lib/format";
import type { JobPage } from "@/lib/types";
import classes from "./JobsTable.module.css";

interface Props {
  page: JobPage;
  isFirst: boolean;
  /** To the page of this cursor; undefined: the first one. */
  onTurn(cursor: string | undefined): void;
}

/** Where this page is in the list, and the way to others. */
export function JobPages({ page, isFirst, onTurn }: Props) {
  const next = page.next_cursor;
  return (
    <nav aria-label="Pages" className={classes.pages}>
      <span role="status">{placeOf(page)}</span>
      {!isFirst && (
        <Button variant="default" onClick={() => onTurn(undefined)}>
          First page
        </Button>
      )}
      {next && (
        <Button variant="default" onClick={() => onTurn(next)}>
          Next page
        </Button>
      )}
    </nav>
  );
}

function placeOf({ items, first, total }: JobPage): string {
  if (total == null || first == null) return "";
  if (items.length === total) return plural(total, "job");
  return `${count(first)}–${count(first + items.length - 1)} of ${count(total)}`;
}
