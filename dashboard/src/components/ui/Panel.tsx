/** A titled surface whose content is always in one of four distinct states, or shows its data. */
import { Button, Skeleton } from "@mantine/core";
import { IconAlertTriangle, IconClockPause, IconRefresh } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { asApiError } from "@/lib/errors";
import { age, sentence } from "@/lib/format";
import { useNow } from "@/lib/useNow";
import { AboutError } from "./AboutError";
import classes from "./Panel.module.css";

interface PanelProps {
  title?: ReactNode;
  /** Of the values shown, beside the title. */
  unit?: string;
  label?: string;
  actions?: ReactNode;
  flush?: boolean;
  children: ReactNode;
}

export function Panel({ title, unit, label, actions, flush = false, children }: PanelProps) {
  const name = label ?? (typeof title === "string" ? title : undefined);
  return (
    <section className={classes.panel} aria-label={name}>
      {(title || actions) && (
        <header className={classes.header}>
          {typeof title === "string" ? (
            <h2 className={classes.title}>
              {title}
              {unit && <span className={classes.unit}>{unit}</span>}
            </h2>
          ) : (
            <div className={classes.tools}>{title}</div>
          )}
          <div className={classes.actions}>{actions}</div>
        </header>
      )}
      <div className={flush ? classes.flush : classes.body}>{children}</div>
    </section>
  );
}

/** The part of a TanStack query (or of a live feed) that the four states need. */
export interface Source<T> {
  data: T | undefined;
  error: unknown;
  isPending: boolean;
  dataUpdatedAt: number;
  refetch(): unknown;
}

interface StatesProps<T> {
  source: Source<T>;
  what: string;
  empty?: ReactNode;
  isEmpty?(data: T): boolean;
  rows?: number;
  /** Set while a live feed is interrupted: when it last said something. */
  staleSince?: number | null;
  children(data: T): ReactNode;
}

export function PanelStates<T>({
  source,
  what,
  empty,
  isEmpty,
  rows = 3,
  staleSince = null,
  children,
}: StatesProps<T>) {
  if (source.data === undefined) {
    return source.error ? (
      <ErrorState error={source.error} what={what} onRetry={source.refetch} />
    ) : (
      <LoadingState rows={rows} what={what} />
    );
  }
  const since = source.error ? source.dataUpdatedAt : staleSince;
  return (
    <>
      {since !== null && <StaleState since={since} error={source.error} onRetry={source.refetch} />}
      {isEmpty?.(source.data) ? empty : children(source.data)}
    </>
  );
}

export function LoadingState({ rows, what }: { rows: number; what: string }) {
  return (
    <div className={classes.loading} role="status" aria-label={`Loading ${what}`}>
      {Array.from({ length: rows }, (_, row) => (
        <Skeleton key={row} height={14} width={`${92 - ((row * 17) % 40)}%`} />
      ))}
    </div>
  );
}

export function EmptyState({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className={classes.empty}>
      <p className={classes.emptyTitle}>{title}</p>
      {children && <div className={classes.emptyText}>{children}</div>}
      {action}
    </div>
  );
}

export function ErrorState({ error, what, onRetry }: { error: unknown; what: string; onRetry?(): unknown }) {
  const problem = asApiError(error);
  return (
    <div className={classes.error} role="alert">
      <IconAlertTriangle size={18} aria-hidden />
      <div className={classes.errorText}>
        <strong>Could not load {what}.</strong> {sentence(problem.message)}
        <div className={classes.code}>
          {problem.code}
          {problem.requestId && ` · request ${problem.requestId}`}
        </div>
        <AboutError error={error} />
      </div>
      {onRetry && <RetryButton onRetry={onRetry} />}
    </div>
  );
}

function StaleState({ since, error, onRetry }: { since: number; error: unknown; onRetry(): unknown }) {
  const now = useNow();
  return (
    <div className={classes.stale} role="status">
      <IconClockPause size={15} aria-hidden />
      <span>
        {error ? `Could not refresh (${asApiError(error).code}).` : "Connection lost, reconnecting."} Showing data from{" "}
        {age(now - since)} ago.
      </span>
      <RetryButton onRetry={onRetry} />
    </div>
  );
}

function RetryButton({ onRetry }: { onRetry(): unknown }) {
  return (
    <Button size="compact-xs" variant="default" leftSection={<IconRefresh size={13} />} onClick={() => onRetry()}>
      Retry
    </Button>
  );
}
