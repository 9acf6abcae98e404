// The last errors, and the end of the log.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { json } from "../../api.ts";
import { Checkbox, Select } from "../../components/field.tsx";
import { Notice } from "../../components/notice.tsx";
import { usePolled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";

const words = texts.activity;
const EVERY_MS = 2000;
const SHOWN = 300;
const LEVELS = ["debug", "info", "warning", "error"];

interface Entry {
  number: number;
  time: string;
  level: string;
  message: string;
}

interface Entries {
  entries: Entry[];
  file: string | null;
}

const asked = (level: string) => () => json<Entries>(`api/log?level=${level}&limit=${SHOWN}`);

export function Log() {
  const level = useSignal("info");
  const follow = useSignal(true);
  const list = useRef<HTMLUListElement>(null);
  const warnings = usePolled(asked("warning"), EVERY_MS);
  const whole = usePolled(asked(level.value), EVERY_MS);
  const newest = whole.value?.entries.at(-1)?.number;
  useEffect(() => {
    if (follow.value && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [newest, follow.value]);
  useEffect(whole.again, [level.value]);
  if (warnings.error) return <Notice error={warnings.error} onRetry={warnings.again} />;
  return (
    <>
      <section aria-labelledby="errors-title">
        <h2 id="errors-title">{words.errors}</h2>
        {warnings.value?.entries.length === 0 && <p class="quiet">{words.noErrors}</p>}
        {warnings.value && warnings.value.entries.length > 0 && <Lines label={words.errors} entries={warnings.value.entries.slice(-20)} testid="log-errors" />}
      </section>
      <section aria-labelledby="log-title">
        <h2 id="log-title">{words.log}</h2>
        <div class="row end">
          <Select label={words.level} value={level.value} onChange={(event) => (level.value = event.currentTarget.value)} testid="log-level">
            {LEVELS.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </Select>
          <Checkbox label={words.follow} checked={follow.value} onChange={(event) => (follow.value = event.currentTarget.checked)} testid="log-follow" />
        </div>
        <Lines label={words.log} entries={whole.value?.entries ?? []} testid="log" list={list} />
        {whole.value?.file && <small>{words.file(whole.value.file)}</small>}
      </section>
    </>
  );
}

function Lines({ label, entries, testid, list }: { label: string; entries: Entry[]; testid: string; list?: { current: HTMLUListElement | null } }) {
  return (
    <ul class="log" ref={list} tabindex={0} aria-label={label} data-testid={testid}>
      {entries.map(({ number, time, level, message }) => (
        <li key={number} class={level}>
          <time dateTime={time}>{time.slice(11, 19)}</time> {level} {message}
        </li>
      ))}
    </ul>
  );
}
