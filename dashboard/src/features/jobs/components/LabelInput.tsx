import { TagsInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { specSchemaQuery } from "@/lib/spec/query";
import { facetsQuery } from "../api/jobs";
import { labelProblem, sameKey } from "../labels";

interface Props {
  label: string;
  value: string[];
  /** Why what stands in the field is no label. */
  problem: string | null;
  onChange(pairs: string[]): void;
  onProblem(problem: string | null): void;
}

/** Labels as key=value. A text that is no label stays in the field to be corrected, with the reason. */
export function LabelInput({ label, value, problem, onChange, onProblem }: Props) {
  const { data: facets } = useQuery(facetsQuery);
  const { data: schema } = useQuery(specSchemaQuery);
  const [typed, setTyped] = useState("");
  // TagsInput empties its field in the same event in which it hands over what stood there.
  const refused = useRef("");
  useEffect(() => {
    refused.current = "";
  });
  const problemOf = (text: string, others: string[]) =>
    value.includes(text) ? null : (labelProblem(text, schema) ?? sameKey(text, others));
  const take = (next: string[]) => {
    const texts = next.map((text) => text.trim());
    const problems = texts.map((text, at) => problemOf(text, [...value, ...texts.slice(0, at)]));
    const unfit = texts.filter((_, at) => problems[at] !== null);
    if (unfit.length > 0) {
      refused.current = unfit.join(", ");
      setTyped(refused.current);
      onProblem(problems.find((each) => each !== null)!);
    }
    onChange(texts.filter((text) => !unfit.includes(text)));
  };
  return (
    <TagsInput
      label={label}
      description="Each as key=value"
      data={Object.entries(facets?.labels ?? {}).flatMap(([key, values]) => values.map((each) => `${key}=${each}`))}
      value={value}
      searchValue={typed}
      error={problem}
      isDuplicate={(text, chosen) => chosen.includes(text.trim())}
      onChange={take}
      onSearchChange={(text) => {
        if (text === "" && refused.current !== "") return;
        setTyped(text);
        onProblem(null);
      }}
    />
  );
}
