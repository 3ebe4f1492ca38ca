import { describe, expect, it } from "vitest";
import { jobUsage } from "@/testing/fixtures";
import { firstOfNodes, firstRanks } from "./cardRanks";
import { MOST_LINES } from "./rankLines";

const [use] = jobUsage().cards;
const on = (rank: number, node: string) => ({ ...use!, rank, node_name: node });

describe("the ranks whose cards are drawn", () => {
  it("are the first ones, as many as there are colours", () => {
    expect(firstRanks(3)).toEqual([0, 1, 2]);
    expect(firstRanks(1024)).toHaveLength(MOST_LINES);
  });

  it("are the first of each node, in their order, also where one has moved to another card", () => {
    expect(firstOfNodes([on(9, "b"), on(8, "b"), on(1, "a"), on(0, "a"), on(0, "a")])).toEqual([0, 8]);
    expect(firstOfNodes(Array.from({ length: 64 }, (_, rank) => on(rank, `node-${rank}`)))).toHaveLength(MOST_LINES);
  });
});
