import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Experiment } from "@/lib/types";

export type Control = "pause" | "resume" | "cancel";

/** Intents need no If-Match: trials move the revision all the time, and to say one twice is harmless. */
function send(control: Control, id: string): Promise<Experiment> {
  const params = { path: { experiment_id: id } };
  if (control === "pause") return unwrap(api.PUT("/api/v1/experiments/{experiment_id}/pause", { params }));
  if (control === "resume") return unwrap(api.PUT("/api/v1/experiments/{experiment_id}/resume", { params }));
  return unwrap(api.DELETE("/api/v1/experiments/{experiment_id}", { params }));
}

export function useExperimentControl(id: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (control: Control) => send(control, id),
    onSuccess: (changed) => client.setQueryData(keys.experiment(id), changed),
    onSettled: () => client.invalidateQueries({ queryKey: keys.experiments }),
  });
}
