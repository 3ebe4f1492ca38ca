import { useCallback, useRef } from "react";

/** Less than this beyond the edge is rounding. */
const SLACK_PX = 2;

/**
 * Returns a ref for an element that scrolls sideways: it carries `data-more="left"`, `right` or `both` where something is beyond
 * its edges, which the stylesheet fades there.
 */
export function useSideways(): (element: HTMLElement | null) => void {
  const stop = useRef<(() => void) | null>(null);
  return useCallback((element) => {
    stop.current?.();
    stop.current = element && watch(element);
  }, []);
}

function watch(element: HTMLElement): () => void {
  const tell = () => {
    const left = element.scrollLeft > SLACK_PX;
    const right = element.scrollWidth - element.clientWidth - element.scrollLeft > SLACK_PX;
    if (left || right) element.dataset.more = left && right ? "both" : left ? "left" : "right";
    else delete element.dataset.more;
  };
  const observer = new ResizeObserver(tell);
  observer.observe(element);
  if (element.firstElementChild) observer.observe(element.firstElementChild);
  element.addEventListener("scroll", tell, { passive: true });
  tell();
  return () => {
    observer.disconnect();
    element.removeEventListener("scroll", tell);
  };
}
