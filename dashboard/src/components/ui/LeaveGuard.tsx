import { Button, Group, Text } from "@mantine/core";
import { useBlocker } from "@tanstack/react-router";
import type { Keeping } from "@/lib/useKeeping";
import { Dialog } from "./Dialog";

interface Place {
  pathname: string;
  search: { template?: string; from?: string; again?: string };
}

interface Props {
  noun: string;
  isEdited(): boolean;
  kept: Keeping;
}

/**
 * Asks what becomes of an edited document before it is left for another page or another template.
 *
 * The browser asks before it reloads or closes the page only where there is no draft: else nothing would be lost.
 */
export function LeaveGuard({ noun, isEdited, kept }: Props) {
  const blocker = useBlocker({
    shouldBlockFn: ({ current, next }) => isEdited() && leaves(current as Place, next as Place),
    enableBeforeUnload: () => isEdited() && !kept.isKept(),
    withResolver: true,
  });
  if (blocker.status !== "blocked") return null;
  const discard = () => {
    kept.drop();
    blocker.proceed();
  };
  const keep = () => {
    if (kept.keep()) blocker.proceed();
  };
  return (
    <Dialog onClose={blocker.reset} title="Keep your changes?" size="lg">
      <Text size="sm">
        {kept.hasRoom
          ? `You have not submitted this ${noun}. This browser can keep a draft of it, to be found under Template.`
          : `You have not submitted this ${noun}, and this browser has no room for a draft. Your changes are lost if you leave.`}
      </Text>
      <Group justify="flex-end" mt="lg" gap="xs">
        <Button variant="default" onClick={blocker.reset} data-autofocus>
          Keep editing
        </Button>
        <Button variant={kept.hasRoom ? "default" : "filled"} color="red.8" onClick={discard}>
          Discard changes
        </Button>
        {kept.hasRoom && <Button onClick={keep}>Keep draft and leave</Button>}
      </Group>
    </Dialog>
  );
}

/** The form and the text are two views of one document; a session that has ended leads to the login page in any case. */
function leaves(current: Place, next: Place): boolean {
  if (next.pathname === "/login") return false;
  return (
    current.pathname !== next.pathname ||
    current.search.template !== next.search.template ||
    current.search.from !== next.search.from ||
    current.search.again !== next.search.again
  );
}
