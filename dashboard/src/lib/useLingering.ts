import { useEffect, useState } from "react";

/** Whether something is on, or was until `ms` milliseconds ago. */
export function useLingering(on: boolean, ms: number): boolean {
  const [lingers, setLingers] = useState(on);
  if (on && !lingers) setLingers(true);
  useEffect(() => {
    if (on) return;
    const timer = setTimeout(() => setLingers(false), ms);
    return () => clearTimeout(timer);
  }, [on, ms]);
  return lingers;
}
