import type { Icon } from "@tabler/icons-react";
import type { ReactNode } from "react";
import classes from "./Notice.module.css";

interface Props {
  icon: Icon;
  /** The name of its region. */
  label: string;
  title: ReactNode;
  tone?: "neutral" | "warn" | "bad";
  action?: ReactNode;
  children: ReactNode;
}

/** What must be known before any number on the page: a title, its explanation, and at most one action. */
export function Notice({ icon: Icon, label, title, tone = "neutral", action, children }: Props) {
  return (
    <section className={classes.notice} data-tone={tone} aria-label={label}>
      <Icon size={18} aria-hidden />
      <div>
        <strong>{title}</strong>
        {children}
      </div>
      {action}
    </section>
  );
}

/** Text as a process wrote it. */
export function Verbatim({ children }: { children: ReactNode }) {
  return <div className={classes.verbatim}>{children}</div>;
}
