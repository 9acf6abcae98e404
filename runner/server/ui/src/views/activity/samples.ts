// The engine's counters over the last minutes, as rates.
import { shortName } from "../../format.ts";

const KEPT = 130; // a little more than a graph shows

export interface Stats {
  steps: number;
  running: number;
  waiting: number;
  pool_tokens: number;
  pool_used: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  rss_bytes: number;
}

export interface Loaded {
  name: string;
  state: "loaded" | "loading";
  shares_memory_of?: string;
  stats: Stats | null;
}

export interface Sample {
  at: number;
  tokensIn: number | null;
  tokensOut: number | null;
  perStep: number | null;
  running: number;
  waiting: number;
  cacheUsed: number | null;
  hits: number | null;
  memory: Record<string, number>;
}

/** What is kept between two answers of the daemon. */
export interface History {
  samples: Sample[];
  last: { at: number; stats: Map<string, Stats> } | null;
}

export const EMPTY: History = { samples: [], last: null };

/** history with what the daemon says now. Models that share a worker share its counters. */
export function extended({ samples, last }: History, models: Loaded[], at: number): History {
  const own = models.filter((model) => !model.shares_memory_of && model.stats);
  const stats = new Map(own.map((model) => [model.name, model.stats as Stats]));
  const sum = (of: (each: Stats) => number) => [...stats.values()].reduce((total, each) => total + of(each), 0);
  const seconds = last ? at - last.at : 0;
  const grown = (of: (each: Stats) => number) =>
    [...stats].reduce((total, [name, each]) => {
      const before = last?.stats.get(name);
      return total + (before && of(each) >= of(before) ? of(each) - of(before) : 0);
    }, 0);
  const rate = (tokens: number) => (seconds > 0 ? tokens / seconds : null);
  const computed = (each: Stats) => each.prompt_tokens - each.cached_tokens;
  const steps = grown((each) => each.steps);
  const asked = sum((each) => each.prompt_tokens);
  const pool = sum((each) => each.pool_tokens);
  const sample: Sample = {
    at,
    tokensIn: rate(grown(computed)),
    tokensOut: rate(grown((each) => each.completion_tokens)),
    perStep: steps ? grown((each) => each.completion_tokens) / steps : null,
    running: sum((each) => each.running),
    waiting: sum((each) => each.waiting),
    cacheUsed: pool ? (100 * sum((each) => each.pool_used)) / pool : null,
    hits: asked ? (100 * sum((each) => each.cached_tokens)) / asked : null,
    memory: Object.fromEntries([...stats].map(([name, each]) => [shortName(name), each.rss_bytes])),
  };
  return { samples: [...samples, sample].slice(-KEPT), last: { at, stats } };
}
