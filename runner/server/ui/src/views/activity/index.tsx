import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { json } from "../../api.ts";
import { Notice } from "../../components/notice.tsx";
import { Table } from "../../components/table.tsx";
import { count, duration, shortName, size } from "../../format.ts";
import { usePolled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";
import { Graph } from "./graph.tsx";
import { Log } from "./log.tsx";
import { Requests } from "./requests.tsx";
import { EMPTY, extended, type Loaded, type Sample } from "./samples.ts";

const words = texts.activity;
const EVERY_MS = 1000;
const VERSION_MS = 30_000;

const percent = (value: number) => words.percent(count(value));

export default function Activity() {
  const loaded = usePolled(() => json<{ models: Loaded[] }>("api/ps"), EVERY_MS);
  const version = usePolled(() => json<{ hearth: string; uptime_s: number }>("api/version"), VERSION_MS);
  const history = useSignal(EMPTY);
  useEffect(() => {
    if (loaded.value) history.value = extended(history.value, loaded.value.models, Date.now() / 1000);
  }, [loaded.value]);
  const models = loaded.value?.models ?? [];
  return (
    <section class="view" data-testid="view-activity">
      <header>
        <h1>{words.title}</h1>
        {version.value && <small>{words.since(version.value.hearth, duration(version.value.uptime_s))}</small>}
      </header>
      {loaded.error && <Notice error={loaded.error} onRetry={loaded.again} />}
      <section aria-labelledby="graphs-title">
        <h2 id="graphs-title">{words.graphs}</h2>
        <Graphs samples={history.value.samples} />
      </section>
      <section>
        <h2>{words.models}</h2>
        {models.length ? <Models models={models} /> : <p class="quiet">{words.idle}</p>}
      </section>
      <Requests />
      <Log />
    </section>
  );
}

function Graphs({ samples }: { samples: Sample[] }) {
  const times = samples.map((each) => each.at);
  const of = (label: string, value: (each: Sample) => number | null) => ({ label, values: samples.map(value) });
  const names = [...new Set(samples.flatMap((each) => Object.keys(each.memory)))];
  const memory = names.map((name) => of(name, (each) => each.memory[name] ?? null));
  return (
    <div class="graphs">
      <Graph title={words.tokens} times={times} lines={[of(words.tokensOut, (each) => each.tokensOut), of(words.tokensIn, (each) => each.tokensIn)]} format={count} testid="graph-tokens" />
      <Graph title={words.queue} times={times} lines={[of(words.running, (each) => each.running), of(words.waiting, (each) => each.waiting)]} format={count} testid="graph-requests" />
      <Graph title={words.batch} times={times} lines={[of(words.batchOf, (each) => each.perStep)]} format={count} testid="graph-batch" />
      <Graph title={words.cache} times={times} lines={[of(words.cacheUsed, (each) => each.cacheUsed), of(words.cacheHits, (each) => each.hits)]} format={percent} top={100} testid="graph-cache" />
      {memory.length > 0 && <Graph title={words.memory} times={times} lines={memory} format={size} testid="graph-memory" />}
    </div>
  );
}

function Models({ models }: { models: Loaded[] }) {
  const { columns } = words;
  return (
    <Table
      caption={words.models}
      columns={[{ title: columns.model }, ...[columns.running, columns.waiting, columns.cache, columns.hits, columns.memory].map((title) => ({ title, number: true }))]}
      testid="loaded-models"
    >
      {models.map(({ name, stats, state, shares_memory_of }) => (
        <tr key={name}>
          <th scope="row">{shortName(name)}</th>
          {stats && !shares_memory_of ? (
            <>
              <td class="number">{stats.running}</td>
              <td class="number">{stats.waiting}</td>
              <td class="number">{percent((100 * stats.pool_used) / Math.max(1, stats.pool_tokens))}</td>
              <td class="number">{percent((100 * stats.cached_tokens) / Math.max(1, stats.prompt_tokens))}</td>
              <td class="number">{size(stats.rss_bytes)}</td>
            </>
          ) : (
            <td colSpan={5}>{shares_memory_of ? words.shares(shortName(shares_memory_of)) : texts.models.state[state]}</td>
          )}
        </tr>
      ))}
    </Table>
  );
}
