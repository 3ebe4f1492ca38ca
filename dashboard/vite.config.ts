import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { usedMantineStyles } from "./mantineStyles.ts";
import { precompress } from "./precompress.ts";

const coordinator = process.env.PACELINE_URL ?? "http://127.0.0.1:8000";
const proxy = { "/api": { target: coordinator, ws: true } };

export default defineConfig({
  plugins: [react(), usedMantineStyles(), precompress()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  // The repository's examples, outside this folder, are the submit page's templates.
  server: { host: "127.0.0.1", port: 3000, proxy, fs: { allow: [".", "../examples"] } },
  preview: { host: "127.0.0.1", port: 3000, proxy },
  build: { target: "es2022", chunkSizeWarningLimit: 700 },
  test: {
    environment: "jsdom",
    setupFiles: ["src/testing/setup.ts"],
    testTimeout: 90_000,
    hookTimeout: 90_000,
    maxWorkers: 2,
    css: false,
  },
});
