/** Who may do what. The coordinator decides; this only says it before a button is pressed. */
import { useMe } from "./me";
import type { JobSummary, Me, Role } from "./types";

type Owned = Pick<JobSummary, "created_by" | "created_by_id">;

const ROLES: readonly Role[] = ["viewer", "member", "admin"];
const WHO: Record<Role, string> = { viewer: "everybody", member: "members and admins", admin: "admins" };

/** Why the coordinator would refuse what needs at least this role; null where it would not. */
export function roleRefusal(me: Me | null | undefined, needs: Role): string | null {
  if (me == null || ROLES.indexOf(me.role) >= ROLES.indexOf(needs)) return null;
  return `Your role is ${me.role}: only ${WHO[needs]} may do this.`;
}

/** Why the coordinator would refuse to cancel this job or to delete or unpin what it left; null where it would not. */
export function refusal(me: Me | null | undefined, job: Owned, noun = "job"): string | null {
  if (me == null || me.role === "admin" || me.role === "viewer") return roleRefusal(me, "member");
  if (me.members_may === "all" || job.created_by_id === me.user_id) return null;
  return `This is ${job.created_by}'s ${noun}: only ${job.created_by} or an admin may do this.`;
}

/** Why the coordinator would refuse a command beside the job's ranks; null where it would not. What members may destroy does not count here. */
export function execRefusal(me: Me | null | undefined, job: Owned): string | null {
  const role = roleRefusal(me, "member");
  if (me == null || role !== null) return role;
  if (me.exec_by === "nobody") return "Commands beside ranks are switched off on this coordinator.";
  if (me.role === "admin") return null;
  if (me.exec_by === "admins") return "Here only admins may run commands beside ranks.";
  return refusal({ ...me, members_may: "own" }, job);
}

export function useExecRefusal(job: Owned): string | null {
  return execRefusal(useMe(), job);
}

export function useRefusal(job: Owned, noun?: string): string | null {
  return refusal(useMe(), job, noun);
}

export function useRoleRefusal(needs: Role): string | null {
  return roleRefusal(useMe(), needs);
}
