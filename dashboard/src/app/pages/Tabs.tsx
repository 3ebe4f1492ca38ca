import { useRef, type KeyboardEvent, type ReactNode } from "react";
import { title } from "@/lib/format";
import classes from "./Tabs.module.css";

interface Props<Name extends string> {
  tabs: readonly Name[];
  chosen: Name;
  label: string;
  /** Beside a tab's name: how many there are. */
  counts?: Partial<Record<Name, number>>;
  onChoose(tab: Name): void;
  children: ReactNode;
}

/** Tabs by the ARIA pattern: one tab stop, arrows move. */
export function Tabs<Name extends string>({ tabs, chosen, label, counts = {}, onChoose, children }: Props<Name>) {
  const list = useRef<HTMLDivElement>(null);
  const onKey = (event: KeyboardEvent) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = tabs[(tabs.indexOf(chosen) + move + tabs.length) % tabs.length]!;
    onChoose(next);
    list.current?.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
  };
  return (
    <>
      <div ref={list} className={classes.list} role="tablist" aria-label={label}>
        {tabs.map((tab) => (
          <button
            key={tab}
            id={`tab-${tab}`}
            type="button"
            role="tab"
            className={classes.tab}
            aria-selected={tab === chosen}
            aria-controls="tab-panel"
            tabIndex={tab === chosen ? 0 : -1}
            onClick={() => onChoose(tab)}
            onKeyDown={onKey}
          >
            {title(tab)}
            {counts[tab] ? (
              <>
                {" "}
                <span className={classes.count}>{counts[tab]}</span>
              </>
            ) : null}
          </button>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${chosen}`}>
        {children}
      </div>
    </>
  );
}
