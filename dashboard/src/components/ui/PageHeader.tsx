import { useEffect, type ReactNode } from "react";
import classes from "./PageHeader.module.css";

interface Props {
  title: string;
  before?: ReactNode;
  after?: ReactNode;
  subtitle?: ReactNode;
  actions?: ReactNode;
}

/** The page's heading, which is the browser tab's title too. */
export function PageHeader({ title, before, after, subtitle, actions }: Props) {
  useEffect(() => {
    document.title = `${title} · Paceline`;
  }, [title]);
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
