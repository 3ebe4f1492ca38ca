import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { configDefaults, defineConfig } from "vitest/config";
import { usedMantineStyles } from "./mantineStyles.ts";
import { precompress } from "./precompress.ts";

const coordinator = process.env.PACELINE_URL ?? "http://127.0.0.1:8000";
const proxy = { "/api": { target: coordinator, ws: true } };

/** Tests without JSX that need a page all the same: storage, sockets, windows. */
const onAPage = [
  "app/missingParts",
  "lib/{client,drafts,stream}",
  "features/{artifacts/perfetto,terminal/session}",
  "features/metrics/**/{exactStep,exports,plot}",
].map((name) => `src/${name}.test.ts`);

/** Tests that put something of their own in the place of a module that others have loaded. */
const alone = ["src/app/pages/leaving.test.tsx"];

export default defineConfig({
  plugins: [react(), usedMantineStyles(), precompress()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  // The repository's examples, outside this folder, are the submit page's templates.
  server: { host: "127.0.0.1", port: 3000, proxy, fs: { allow: [".", "../examples"] } },
  preview: { host: "127.0.0.1", port: 3000, proxy },
  build: { target: "es2022", chunkSizeWarningLimit: 700 },
  test: {
    testTimeout: 90_000,
    hookTimeout: 90_000,
    maxWorkers: 2,
    css: false,
    // What draws nothing needs no page: a third of the files, which start in no time.
    projects: [
      {
        extends: true,
        test: {
          name: "logic",
          include: ["**/*.test.{js,ts}"],
          exclude: [...configDefaults.exclude, ...onAPage],
          environment: "node",
        },
      },
      {
        extends: true,
        test: {
          name: "pages",
          include: ["src/**/*.test.tsx", ...onAPage],
          exclude: [...configDefaults.exclude, ...alone],
          environment: "jsdom",
          isolate: false, // the application is loaded once in each worker, not once in each file
          setupFiles: ["src/testing/setup.ts"],
        },
      },
      {
        extends: true,
        test: { name: "alone", include: alone, environment: "jsdom", setupFiles: ["src/testing/setup.ts"] },
      },
    ],
  },
});
