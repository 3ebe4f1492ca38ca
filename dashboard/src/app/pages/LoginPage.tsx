import { getRouteApi } from "@tanstack/react-router";
import { useCallback } from "react";
import { SignIn } from "@/features/auth/components/SignIn";

const route = getRouteApi("/login");

export function LoginPage() {
  const { token = null, refused = null, ended = false, next } = route.useSearch();
  const navigate = route.useNavigate();
  const onTokenTaken = useCallback(() => void navigate({ search: { next }, replace: true }), [navigate, next]);
  const onSignedIn = useCallback(() => void navigate({ to: next ?? "/jobs", replace: true }), [navigate, next]);
  return (
    <SignIn
      token={token}
      refused={refused}
      ended={ended}
      next={next ?? "/jobs"}
      onTokenTaken={onTokenTaken}
      onSignedIn={onSignedIn}
    />
  );
}
