import { useEffect, type ReactNode } from "react";
import classes from "./PageHeader.module.css";

interface Props {
  title: string;
  /** Before the title in the browser's tab, such as how much is done. */
  tabPrefix?: string;
  before?: ReactNode;
  after?: ReactNode;
  subtitle?: ReactNode;
  actions?: ReactNode;
}

/** The page's heading, which is the browser tab's title too. */
export function PageHeader({ title, tabPrefix, before, after, subtitle, actions }: Props) {
  useEffect(() => {
    document.title = `${[tabPrefix, title].filter(Boolean).join(" ")} · Paceline`;
  }, [tabPrefix, title]);
  return (
    <header className={classes.header}>
      <div className={classes.names}>
        {before}
        <div className={classes.line}>
          <h1 className={classes.title}>{title}</h1>
          {after}
        </div>
        {subtitle && <div className={classes.subtitle}>{subtitle}</div>}
      </div>
      <div className={classes.actions}>{actions}</div>
    </header>
  );
}
