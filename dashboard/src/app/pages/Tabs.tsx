import { useMergedRef } from "@mantine/hooks";
import { useEffect, useRef, type KeyboardEvent, type ReactNode } from "react";
import { useChosenInView } from "@/components/ui/useChosenInView";
import { useSideways } from "@/components/ui/useSideways";
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

const PHONE = "(max-width: 760px)";

/** Tabs by the ARIA pattern: one tab stop; arrows, Home and End move. */
export function Tabs<Name extends string>({ tabs, chosen, label, counts = {}, onChoose, children }: Props<Name>) {
  const list = useRef<HTMLDivElement>(null);
  const sideways = useMergedRef(list, useSideways());
  const first = useRef({ chosen, isFirst: chosen === tabs[0] });
  // A page that is opened at one of its other tabs shows that tab, also on a phone, where notices and facts fill the screen.
  useEffect(() => {
    const { chosen: opened, isFirst } = first.current;
    const block = !isFirst && window.matchMedia(PHONE).matches ? "start" : "nearest";
    if (!isFirst) list.current?.querySelector(`#tab-${opened}`)?.scrollIntoView?.({ inline: "nearest", block });
  }, []);
  const before = useRef(chosen);
  useEffect(() => {
    if (before.current === chosen) return;
    before.current = chosen;
    comeTo(list.current, chosen);
  }, [chosen]);
  useChosenInView(list, `#tab-${chosen}`, JSON.stringify(counts));
  const onKey = (event: KeyboardEvent) => {
    const at = tabs.indexOf(chosen);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length]!;
    onChoose(next);
    list.current?.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
  };
  return (
    <>
      <div ref={sideways} className={`${classes.list} sideways`} role="tablist" aria-label={label}>
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

/** Of a tab that was chosen from elsewhere, such as a chart's menu, what was clicked on is gone: the tab has the focus then, and is in view. */
function comeTo(list: HTMLElement | null, chosen: string) {
  const focused = document.activeElement;
  if (focused === document.body || list?.contains(focused))
    list?.querySelector<HTMLElement>(`#tab-${chosen}`)?.focus({ preventScroll: true });
  list?.scrollIntoView({ block: "nearest" });
}
