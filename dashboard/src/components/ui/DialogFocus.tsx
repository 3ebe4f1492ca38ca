import { useLayoutEffect, useRef, useState } from "react";

const STOPS = "a[href], button, input, select, textarea, summary, [contenteditable=true], [tabindex]";

/** What has the focus as a dialog is asked for; of a menu, which closes then, the button that opened it. For `DialogFocus`. */
export function useFocusBefore(): Element | null {
  const [before] = useState(() => {
    const active = document.activeElement;
    const menu = active?.closest("[role=menu]");
    return (menu && document.getElementById(menu.getAttribute("aria-labelledby") ?? "")) ?? active;
  });
  return before;
}

/**
 * Has the focus for a dialog, from inside of it: Mantine gives it in a timer, and what is typed until then goes to the page behind.
 *
 * The field marked `data-autofocus` has the focus as soon as it is drawn, neither Tab nor a menu that closes takes it to the page behind,
 * and what had the focus before has it again afterwards. The dialog itself is called with `trapFocus={false}`.
 */
export function DialogFocus({ before }: { before: Element | null }) {
  const place = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    const dialog = place.current!.closest<HTMLElement>("[role=dialog]")!;
    let first: HTMLElement | null = null;
    const begin = () => {
      const wanted = dialog.querySelector<HTMLElement>("[data-autofocus]");
      if (wanted && wanted !== first) focus((first = wanted));
      else if (document.activeElement !== dialog) focus(dialog);
    };
    let last: HTMLElement = dialog;
    const onFocus = ({ target }: FocusEvent) => {
      if (!(target instanceof HTMLElement)) return;
      if (dialog.contains(target)) last = target;
      else if (!target.closest("[data-portal]")) focus(last.isConnected ? last : dialog);
    };
    const onKey = (event: KeyboardEvent) => event.key === "Tab" && !event.defaultPrevented && stayWithin(dialog, event);
    // What a dialog asks the coordinator for is drawn later, and a button that is gone leaves the focus to the page.
    const drawn = new MutationObserver(() => isNowhere(dialog) && begin());
    document.addEventListener("focusin", onFocus);
    begin();
    drawn.observe(dialog, { childList: true, subtree: true });
    document.addEventListener("keydown", onKey);
    return () => {
      drawn.disconnect();
      document.removeEventListener("focusin", onFocus);
      document.removeEventListener("keydown", onKey);
      if (document.activeElement === document.body || dialog.contains(document.activeElement)) focus(before);
    };
  }, [before]);
  return <span ref={place} hidden />;
}

function focus(element: Element | null): void {
  if (element instanceof HTMLElement) element.focus({ preventScroll: true });
}

function isNowhere(dialog: HTMLElement): boolean {
  return document.activeElement === document.body || document.activeElement === dialog;
}

function stayWithin(dialog: HTMLElement, event: KeyboardEvent): void {
  const active = document.activeElement;
  if (!dialog.contains(active)) return;
  const stops = [...dialog.querySelectorAll<HTMLElement>(STOPS)].filter(isStop);
  const [from, to] = event.shiftKey ? [stops[0], stops.at(-1)] : [stops.at(-1), stops[0]];
  if (active !== from && !(active === dialog && event.shiftKey)) return;
  event.preventDefault();
  focus(to ?? dialog);
}

function isStop(element: HTMLElement): boolean {
  return element.tabIndex >= 0 && !element.matches(":disabled") && (element.checkVisibility?.() ?? true);
}
