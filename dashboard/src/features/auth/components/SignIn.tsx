import { Button, Loader } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { CopyBox } from "@/components/ui/CopyBox";
import { Mark } from "@/components/ui/Mark";
import { asApiError } from "@/lib/errors";
import { keys } from "@/lib/keys";
import { login } from "../api/session";
import classes from "./SignIn.module.css";

interface Props {
  token: string | null;
  /** Takes the token out of the address bar and the history before it is used. */
  onTokenTaken(): void;
  onSignedIn(): void;
}

export function SignIn({ token, onTokenTaken, onSignedIn }: Props) {
  const client = useQueryClient();
  const taken = useRef<string | null>(null);
  const { mutate, isPending, error } = useMutation({
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
        {isPending ? (
          <SigningIn />
        ) : (
          <HowToSignIn error={error} onRetry={taken.current ? () => mutate(taken.current!) : undefined} />
        )}
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

function HowToSignIn({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <>
      <h1 className={classes.title}>Sign in with a link</h1>
      {error ? <LinkRefused error={error} onRetry={onRetry} /> : null}
      <p className={classes.lead}>
        Links are single-use. On the machine that runs the coordinator, print one and open it here:
      </p>
      <CopyBox value="paceline login-link" />
      <p className={classes.small}>Where that command is not installed, in the checkout:</p>
      <CopyBox value={`python -m paceline.api.admin login-link --base-url ${window.location.origin}`} />
      <p className={classes.small}>No access to that machine? An administrator can create a link for you.</p>
    </>
  );
}

function LinkRefused({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const problem = asApiError(error);
  const mayPass = problem.status === 0 || problem.status >= 500;
  return (
    <div className={classes.error} role="alert">
      <strong>This link did not sign you in.</strong> {problem.message} <code>{problem.code}</code>
      {mayPass && onRetry && (
        <Button mt="xs" variant="default" onClick={onRetry}>
          Retry
        </Button>
      )}
    </div>
  );
}
