import { Button, Loader, PasswordInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, type FormEvent } from "react";
import { CopyBox } from "@/components/ui/CopyBox";
import { Mark } from "@/components/ui/Mark";
import { asApiError } from "@/lib/errors";
import { sentence } from "@/lib/format";
import { keys } from "@/lib/keys";
import { login, providerUrl, waysQuery } from "../api/session";
import classes from "./SignIn.module.css";

interface Props {
  token: string | null;
  /** Why the provider signed nobody in: a code of the coordinator. */
  refused: string | null;
  /** The session ended while a page was open. */
  ended: boolean;
  /** The page to go on to. */
  next: string;
  /** Takes the token out of the address bar and the history before it is used. */
  onTokenTaken(): void;
  onSignedIn(): void;
}

export function SignIn({ token, refused, ended, next, onTokenTaken, onSignedIn }: Props) {
  const client = useQueryClient();
  const taken = useRef<string | null>(null);
  const { mutate, variables, isPending, error } = useMutation({
    mutationFn: login,
    onSuccess: (me) => {
      client.setQueryData(keys.me, me);
      onSignedIn();
    },
  });
  useEffect(() => {
    if (token === null || taken.current === token) return;
    taken.current = token;
    onTokenTaken();
    mutate(token);
  }, [token, onTokenTaken, mutate]);

  return (
    <main className={classes.page}>
      <div className={classes.card}>
        <div className={classes.brand}>
          <Mark size={30} />
          <span>Paceline</span>
        </div>
        {isPending && <SigningIn />}
        <div hidden={isPending}>
          <h1 className={classes.title}>Sign in</h1>
          {error ? <Refused error={error} onRetry={variables ? () => mutate(variables) : undefined} /> : null}
          {refused !== null && !error && <RefusedByProvider code={refused} />}
          {ended && !error && (
            <p className={classes.ended} role="status">
              Your session has ended. Sign in again.
            </p>
          )}
          <ProviderLink next={next} />
          <HowToGetLink />
          <KeyForm onKey={mutate} />
        </div>
      </div>
    </main>
  );
}

function SigningIn() {
  return (
    <p className={classes.lead} role="status">
      <Loader size="xs" mr="sm" /> Signing in
    </p>
  );
}

/** By the code of the coordinator: a text in an address could be anybody's. */
const PROVIDER_REFUSALS: Record<string, string> = {
  oidc_no_role: "Your account has no role here. Ask an admin of Paceline for one.",
  oidc_unavailable: "The sign-in service does not answer. Try again in a minute.",
  already_exists: "Another user already has your name. Ask an admin of Paceline.",
  rate_limited: "There were too many attempts. Try again in a minute.",
};

function RefusedByProvider({ code }: { code: string }) {
  return (
    <div className={classes.error} role="alert">
      <strong>You are not signed in.</strong>{" "}
      {PROVIDER_REFUSALS[code] ?? "The sign-in service did not confirm who you are. Try again."}
    </div>
  );
}

function ProviderLink({ next }: { next: string }) {
  const name = useQuery(waysQuery).data?.oidc;
  if (!name) return null;
  return (
    <div className={classes.way}>
      <Button component="a" href={providerUrl(next)} size="sm" fullWidth>
        Sign in with {name}
      </Button>
    </div>
  );
}

function HowToGetLink() {
  return (
    <section className={classes.way} aria-label="Login link">
      <p className={classes.lead}>
        Open a login link. It works once. On the machine that runs the coordinator, print one with:
      </p>
      <CopyBox value="paceline login-link" />
      <details className={classes.more}>
        <summary>Another way to get a link</summary>
        <p className={classes.small}>Where that command is not installed, in the checkout:</p>
        <CopyBox value={`python -m paceline.api.admin login-link --base-url ${window.location.origin}`} />
        <p className={classes.small}>
          No access to that machine? An admin can create a link for you on the People page, or with:
        </p>
        <CopyBox value="paceline login-link --user YOUR_NAME" />
      </details>
    </section>
  );
}

function KeyForm({ onKey }: { onKey(key: string): void }) {
  const [key, setKey] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (key.trim() !== "") onKey(key.trim());
  };
  return (
    <form className={classes.way} onSubmit={submit}>
      <PasswordInput
        label="Or use an API key"
        description="This browser may then do what the key may, until the key expires or is revoked."
        placeholder="pk_…"
        size="sm"
        autoComplete="off"
        value={key}
        onChange={(event) => setKey(event.currentTarget.value)}
      />
      <Button type="submit" size="sm" mt="sm" fullWidth disabled={key.trim() === ""}>
        Sign in with this key
      </Button>
    </form>
  );
}

function Refused({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const problem = asApiError(error);
  const mayPass = problem.status === 0 || problem.status >= 500;
  return (
    <div className={classes.error} role="alert">
      <strong>You are not signed in.</strong> {sentence(problem.message)}
      {/[.!?]$/.test(problem.message) ? "" : "."}
      {mayPass && onRetry && (
        <Button mt="xs" variant="default" onClick={onRetry}>
          Retry
        </Button>
      )}
    </div>
  );
}
