import { useMe } from "@/lib/me";
import classes from "./MockBanner.module.css";

/** On every page of a coordinator with MOCK_DB: what is not real, and why nobody had to sign in. */
export function MockBanner() {
  const me = useMe();
  if (!me?.mock) return null;
  return (
    <div className={classes.banner} role="note">
      <strong>Simulated cluster (MOCK_DB).</strong> No rank runs: losses, readings and faults come from a model, and all
      of it is gone when the coordinator ends.
      {me.guest && (
        <span
          className={classes.who}
        >{` You are ${me.name}, an admin without signing in, because this browser is on the same machine.`}</span>
      )}
    </div>
  );
}
