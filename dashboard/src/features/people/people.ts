import { age, MISSING } from "@/lib/format";
import type { ApiKey, BrowserSession, Role } from "@/lib/types";

export const ROLES: readonly { value: Role; label: string; may: string }[] = [
  { value: "viewer", label: "Viewer", may: "Sees everything and changes nothing." },
  { value: "member", label: "Member", may: "Also submits and steers jobs and experiments." },
  { value: "admin", label: "Admin", may: "Also manages nodes, users and other people's jobs." },
];

export const roleLabel = (role: Role): string => ROLES.find(({ value }) => value === role)!.label;

/** The roles that somebody with this role can give to a key. */
export const rolesUpTo = (role: Role) => ROLES.slice(0, ROLES.findIndex(({ value }) => value === role) + 1);

export type KeyState = "active" | "expired" | "revoked";

export function keyState(key: ApiKey, now: number): KeyState {
  if (key.revoked_at !== null) return "revoked";
  return key.expires_at !== null && Date.parse(key.expires_at) <= now ? "expired" : "active";
}

export function ago(time: string | null | undefined, now: number): string {
  return time ? `${age(Math.max(0, now - Date.parse(time)))} ago` : "never";
}

const SIGNED_IN_BY = { login_link: "Login link", api_key: "API key", oidc: "Single sign-on" } as const;

export function signedInBy({ signed_in_by: by, key_prefix: prefix }: BrowserSession): string {
  if (by === null) return MISSING;
  return prefix ? `${SIGNED_IN_BY[by]} ${prefix}…` : SIGNED_IN_BY[by];
}

/** Kinds of actions, as the first word of each names them. */
export const ACTIONS = [
  { value: "auth", label: "Sign-ins and login links" },
  { value: "auth.sign_in_failed", label: "Failed sign-ins" },
  { value: "user", label: "Users" },
  { value: "key", label: "API keys" },
  { value: "session", label: "Sessions" },
  { value: "job", label: "Jobs" },
  { value: "experiment", label: "Experiments" },
  { value: "checkpoint", label: "Checkpoints" },
  { value: "model", label: "Models" },
  { value: "exec", label: "Commands beside ranks" },
  { value: "secret", label: "Secrets" },
  { value: "view", label: "Saved views" },
  { value: "chart", label: "Charts" },
  { value: "node", label: "Nodes" },
  { value: "pool", label: "Pools" },
  { value: "launch", label: "Launches of nodes" },
  { value: "notification", label: "Notifications" },
] as const;
