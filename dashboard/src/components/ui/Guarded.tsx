import { Tooltip } from "@mantine/core";
import { cloneElement, useId, type MouseEvent, type ReactElement } from "react";

interface Pressable {
  onClick?: unknown;
  disabled?: boolean;
  "aria-disabled"?: boolean;
  "aria-describedby"?: string;
  "data-disabled"?: boolean;
}

interface Props {
  /** Why it may not be pressed; null where it may. */
  refused: string | null;
  /** What pressing does, for a button that is only an icon. */
  hint?: string;
  children: ReactElement<Pressable>;
}

/**
 * A button that says why it may not be pressed. It keeps its place among the tab stops, where its reason can be read: a button with the
 * attribute `disabled` never gets the focus, and shows no tooltip.
 */
export function Guarded({ refused, hint, children }: Props) {
  const id = useId();
  if (refused === null) return hint ? <Tooltip label={hint}>{children}</Tooltip> : children;
  return (
    <>
      <Tooltip label={refused} events={{ hover: true, focus: true, touch: true }} multiline maw={320}>
        {cloneElement(children, {
          onClick: (event: MouseEvent) => event.preventDefault(),
          disabled: false,
          "aria-disabled": true,
          "aria-describedby": id,
          "data-disabled": true,
        })}
      </Tooltip>
      <span id={id} className="visually-hidden">
        {refused}
      </span>
    </>
  );
}
