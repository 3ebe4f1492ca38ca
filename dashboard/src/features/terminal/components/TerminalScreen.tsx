import { useComputedColorScheme } from "@mantine/core";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef } from "react";
import { ExecSession, type SessionEnd, type Started } from "../api/session";
import classes from "./Terminal.module.css";

interface Props {
  jobId: string;
  rank: number;
  command: readonly string[];
  /** The id of what says how the terminal is left by keyboard. */
  describedBy: string;
  /** Set to end the session. */
  ending: boolean;
  onStarted(started: Started): void;
  onEnd(end: SessionEnd): void;
}

/** A terminal and its session: it begins when this is mounted, and ends when this is unmounted at the latest. */
export default function TerminalScreen({ jobId, rank, command, describedBy, ending, onStarted, onEnd }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const terminal = useRef<Terminal | null>(null);
  const session = useRef<ExecSession | null>(null);
  const handlers = useRef({ onStarted, onEnd });
  const scheme = useComputedColorScheme("light");

  useEffect(() => {
    handlers.current = { onStarted, onEnd };
  });

  useEffect(() => {
    const screen = new Terminal({
      fontFamily: property("--mono"),
      fontSize: place.current!.clientWidth < 480 ? 12 : 13,
      scrollback: 5_000,
      minimumContrastRatio: 4.5,
      screenReaderMode: true,
      cursorBlink: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
    });
    const fit = new FitAddon();
    screen.loadAddon(fit);
    screen.open(place.current!);
    fit.fit();
    const opened = new ExecSession(
      jobId,
      { rank, command, rows: screen.rows, columns: screen.cols },
      {
        onStarted: (started) => {
          handlers.current.onStarted(started);
          opened.resize({ rows: screen.rows, columns: screen.cols });
          screen.focus();
        },
        onOutput: (output, taken) => screen.write(output, taken),
        onEnd: (end) => {
          screen.options.disableStdin = true;
          screen.options.cursorBlink = false;
          handlers.current.onEnd(end);
        },
      },
    );
    screen.onData((text) => opened.type(text));
    screen.onResize(({ rows, cols: columns }) => opened.resize({ rows, columns }));
    screen.attachCustomKeyEventHandler((event) => !leavesTerminal(event, place.current));
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(place.current!);
    terminal.current = screen;
    session.current = opened;
    return () => {
      observer.disconnect();
      handlers.current = { onStarted: () => undefined, onEnd: () => undefined };
      opened.close();
      screen.dispose();
    };
    // A new session is a new mount.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, []);

  useEffect(() => {
    if (ending) session.current?.close();
  }, [ending]);

  useEffect(() => {
    const text = property("--text");
    const background = property("--sunken");
    terminal.current!.options.theme = {
      background,
      foreground: text,
      cursor: text,
      cursorAccent: background,
      selectionBackground: property("--mark-3"),
    };
  }, [scheme]);

  return (
    <div
      ref={place}
      className={classes.screen}
      role="group"
      aria-label={`Terminal beside rank ${rank}`}
      aria-describedby={describedBy}
    />
  );
}

function property(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Shift+F6 moves the focus on, since Tab belongs to the shell. */
function leavesTerminal(event: KeyboardEvent, place: HTMLElement | null): boolean {
  if (event.key !== "F6" || !event.shiftKey) return false;
  if (event.type === "keydown") {
    event.preventDefault();
    place?.closest("section")?.querySelector<HTMLElement>("button:not([disabled])")?.focus();
  }
  return true;
}
