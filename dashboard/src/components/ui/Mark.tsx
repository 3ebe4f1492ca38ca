/** A paceline: riders in a row, the one in the wind in colour. */
export function Mark({ size = 22 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" aria-hidden focusable="false">
      <g strokeWidth="3.2" strokeLinecap="round" fill="none">
        <path d="M4 18 7 6" stroke="var(--mark-3)" />
        <path d="M10.4 18 13.4 6" stroke="var(--mark-2)" />
        <path d="M16.8 18 19.8 6" stroke="var(--accent)" />
      </g>
    </svg>
  );
}
