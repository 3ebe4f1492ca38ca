import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/lib/client";
import { keys } from "@/lib/keys";
import type { Schema } from "./schema";

/** The schema of a job spec: what each field may hold, and in words. */
export const specSchemaQuery = queryOptions({
  queryKey: keys.specSchema,
  queryFn: async ({ signal }) => (await unwrap(api.GET("/api/v1/training/spec-schema", { signal }))) as Schema,
  staleTime: Infinity,
});
