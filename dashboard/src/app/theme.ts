import { createTheme, type MantineColorsTuple } from "@mantine/core";

const pace: MantineColorsTuple = [
  "#eef0fd",
  "#dbdffa",
  "#b4bdf5",
  "#8b98f0",
  "#6a7aec",
  "#5567e4",
  "#4a5cd8",
  "#4154c8",
  "#3546b0",
  "#27358c",
];

const dark: MantineColorsTuple = [
  "#e7e9ef",
  "#c0c6d2",
  "#9aa2b3",
  "#6b7386",
  "#3a4150",
  "#282d38",
  "#1b1f28",
  "#161920",
  "#101218",
  "#0b0d11",
];

/** The list of options scrolls by itself: Mantine's scroll area around it can be scrolled but not reached by keyboard. */
const PLAIN_LIST = {
  withScrollArea: false,
  styles: { options: { maxHeight: "min(420px, 60vh)", overflowY: "auto" } },
} as const;

/** Dense and quiet; the tokens that carry meaning are in styles.css, checked for contrast in both schemes. */
export const theme = createTheme({
  respectReducedMotion: true,
  colors: { pace, dark },
  primaryColor: "pace",
  primaryShade: { light: 7, dark: 7 },
  fontFamily: '"Inter Variable", system-ui, sans-serif',
  fontFamilyMonospace: '"JetBrains Mono", ui-monospace, monospace',
  defaultRadius: 6,
  cursorType: "pointer",
  fontSizes: { xs: "12px", sm: "13px", md: "14px", lg: "16px", xl: "19px" },
  components: {
    // Mantine's own colour for links is too dark for a row under the pointer.
    Anchor: { defaultProps: { c: "var(--accent-text)" } },
    Button: { defaultProps: { size: "xs" } },
    TextInput: { defaultProps: { size: "xs" } },
    Select: { defaultProps: { size: "xs", ...PLAIN_LIST } },
    MultiSelect: { defaultProps: { size: "xs", ...PLAIN_LIST } },
    Textarea: { defaultProps: { size: "xs" } },
    Checkbox: { defaultProps: { size: "xs" } },
    // The focus goes to the first item, not to an empty element that a menu may not have in it.
    Menu: { defaultProps: { withInitialFocusPlaceholder: false } },
    Switch: { defaultProps: { size: "xs" } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    Tooltip: { defaultProps: { withArrow: true, openDelay: 250 } },
  },
});
