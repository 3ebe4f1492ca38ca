/** A text of the API, in which names and values stand in backticks, as in Markdown. */
export function Marked({ text }: { text: string }) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return text; // one of them has no other
  return parts.map((part, index) => (index % 2 === 0 ? part : <code key={index}>{part}</code>));
}
