import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import type { AppRouter } from "./router";
import { theme } from "./theme";

// The same key as public/color-scheme.js reads before the first paint.
const colorScheme = localStorageColorSchemeManager({ key: "paceline-color-scheme" });

export function App({ client, router }: { client: QueryClient; router: AppRouter }) {
  return (
    <MantineProvider theme={theme} colorSchemeManager={colorScheme} defaultColorScheme="auto">
      <QueryClientProvider client={client}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  );
}
