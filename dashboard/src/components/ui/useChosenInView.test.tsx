import { act, render } from "@testing-library/react";
import { useRef } from "react";
import { describe, expect, it } from "vitest";
import { useChosenInView } from "./useChosenInView";

const STRIP = { left: 0, right: 300 };

function Strip({ chosen, contents = "" }: { chosen: string; contents?: string }) {
  const strip = useRef<HTMLDivElement>(null);
  useChosenInView(strip, `#${chosen}`, contents);
  return (
    <div ref={strip} data-testid="strip">
      {["first", "last"].map((id) => (
        <i key={id} id={id} />
      ))}
    </div>
  );
}

/** Gives the strip 300 pixels and its entries places that its scrolling moves, as a browser does. */
function layOut(strip: HTMLElement, places: Record<string, { left: number; right: number }>) {
  strip.getBoundingClientRect = () => STRIP as DOMRect;
  for (const [id, { left, right }] of Object.entries(places))
    strip.querySelector(`#${id}`)!.getBoundingClientRect = () =>
      ({ left: left - strip.scrollLeft, right: right - strip.scrollLeft }) as DOMRect;
}

describe("a strip that scrolls sideways", () => {
  it("brings the chosen entry to its middle, unless it is in view", () => {
    const { getByTestId, rerender } = render(<Strip chosen="first" />);
    const strip = getByTestId("strip");
    layOut(strip, { first: { left: 0, right: 80 }, last: { left: 400, right: 480 } });
    rerender(<Strip chosen="last" />);
    expect(strip.scrollLeft).toBe(290);
    strip.scrollLeft = 190;
    rerender(<Strip chosen="last" contents="more" />);
    expect(strip.scrollLeft).toBe(190);
    rerender(<Strip chosen="first" contents="more" />);
    expect(strip.scrollLeft).toBe(-110);
  });

  it("does so again when an entry moves: a count is added, or a font arrives", () => {
    const { getByTestId, rerender } = render(<Strip chosen="last" />);
    const strip = getByTestId("strip");
    layOut(strip, { last: { left: 280, right: 360 } });
    rerender(<Strip chosen="last" contents="incidents 2" />);
    expect(strip.scrollLeft).toBe(170);
    layOut(strip, { last: { left: 460, right: 540 } });
    act(() => void document.fonts.dispatchEvent(new Event("loadingdone")));
    expect(strip.scrollLeft).toBe(350);
  });
});
