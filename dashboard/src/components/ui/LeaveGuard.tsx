import { useBlocker } from "@tanstack/react-router";
import { Confirm } from "./Confirm";

interface Place {
  pathname: string;
  search: { template?: string; from?: string };
}

/** Asks before an edited document is left for another page or another template, and has the browser ask before it is closed. */
export function LeaveGuard({ noun = "job", isEdited }: { noun?: string; isEdited(): boolean }) {
  const blocker = useBlocker({
    shouldBlockFn: ({ current, next }) => isEdited() && leaves(current as Place, next as Place),
    enableBeforeUnload: isEdited,
    withResolver: true,
  });
  if (blocker.status !== "blocked") return null;
  return (
    <Confirm
      opened
      title="Discard your changes?"
      verb="Discard changes"
      keep="Keep editing"
      onClose={blocker.reset}
      onConfirm={blocker.proceed}
    >
      This {noun} has not been submitted. Your changes to it are lost if you leave.
    </Confirm>
  );
}

/** The form and the text are two views of one document; a session that has ended leads to the login page in any case. */
function leaves(current: Place, next: Place): boolean {
  if (next.pathname === "/login") return false;
  return (
    current.pathname !== next.pathname ||
    current.search.template !== next.search.template ||
    current.search.from !== next.search.from
  );
}
