import { useEffect, type RefObject } from "react";

/**
 * Keeps the chosen entry of a strip that scrolls sideways in view: when another is chosen, when `contents` changes, and when a
 * font arrives, since both move entries. It does not scroll the page, nor a strip whose entry is in view.
 */
export function useChosenInView(strip: RefObject<HTMLElement | null>, selector: string, contents: string) {
  useEffect(() => {
    const show = () => showEntry(strip.current, selector);
    show();
    document.fonts.addEventListener("loadingdone", show);
    return () => document.fonts.removeEventListener("loadingdone", show);
  }, [strip, selector, contents]);
}

function showEntry(strip: HTMLElement | null, selector: string) {
  const entry = strip?.querySelector(selector)?.getBoundingClientRect();
  if (!strip || !entry) return;
  const { left, right } = strip.getBoundingClientRect();
  if (entry.left < left || entry.right > right) strip.scrollLeft += (entry.left + entry.right - left - right) / 2;
}
