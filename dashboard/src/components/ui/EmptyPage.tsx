import { EmptyState } from "./Panel";

/** A page behind the first one whose list has become shorter: the way to the first one stands below it. */
export function EmptyPage() {
  return (
    <EmptyState title="Nothing on this page any more">The list has become shorter. Go to its first page.</EmptyState>
  );
}
