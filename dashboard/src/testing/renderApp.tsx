import { render } from "@testing-library/react";
import { createMemoryHistory } from "@tanstack/react-router";
import { App } from "@/app/App";
import { createAppRouter } from "@/app/router";
import { createQueryClient } from "@/lib/query";

/** The whole application at an address, without retries, so that an error shows at once. */
export function renderApp(address: string) {
  const client = createQueryClient();
  client.setDefaultOptions({ queries: { ...client.getDefaultOptions().queries, retry: false } });
  const router = createAppRouter(client);
  router.update({ ...router.options, history: createMemoryHistory({ initialEntries: [address] }) });
  return { client, router, ...render(<App client={client} router={router} />) };
}
