// Pulls: the daemon runs them, so that they go on without this page.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ask } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Checkbox, TextField } from "../../components/field.tsx";
import { Notice } from "../../components/notice.tsx";
import { Progress } from "../../components/progress.tsx";
import { toastError } from "../../components/toast.tsx";
import { size } from "../../format.ts";
import { usePolled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";
import { type Pull, pulls } from "./data.ts";

const words = texts.models.pull;
const ACTIVE_MS = 500;
const IDLE_MS = 5000;

export function Pulls({ onDone }: { onDone: () => void }) {
  const name = useSignal("");
  const insecure = useSignal(false);
  const active = useSignal(false);
  const found = usePolled(pulls, active.value ? ACTIVE_MS : IDLE_MS);
  const done = found.value?.filter((pull) => pull.phase === "done").length ?? 0;
  const before = useRef<number | null>(null);
  useEffect(() => {
    if (before.current !== null && done > before.current) onDone();
    if (found.value) before.current = done;
    active.value = found.value?.some((pull) => pull.phase === "running") ?? false;
  }, [found.value]);
  const act = async (path: string, method = "POST", body?: unknown) => {
    try {
      await ask(path, { method, body });
    } catch (error) {
      toastError(error);
    }
    found.again();
  };
  const start = async (event: Event) => {
    event.preventDefault();
    const model = name.value.trim();
    if (!model) return;
    await act("api/pulls", "POST", { model, insecure: insecure.value });
    name.value = "";
  };
  if (found.error?.status === 403) return null;
  return (
    <section aria-labelledby="pull-title">
      <h2 id="pull-title">{words.title}</h2>
      {found.error && <Notice error={found.error} onRetry={found.again} />}
      <form onSubmit={start}>
        <div class="row">
          <TextField label={words.name} hint={words.hint} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} autocomplete="off" spellcheck={false} testid="pull-name" />
          <Button kind="primary" icon="download" type="submit" testid="pull-start">
            {words.start}
          </Button>
        </div>
        <Checkbox label={words.insecure} checked={insecure.value} onChange={(event) => (insecure.value = event.currentTarget.checked)} testid="pull-insecure" />
      </form>
      {found.value && found.value.length > 0 && (
        <>
          <ul class="cards" aria-label={words.list} data-testid="pulls">
            {found.value.map((pull) => (
              <PullCard key={pull.number} pull={pull} act={act} />
            ))}
          </ul>
          <small>{words.note}</small>
        </>
      )}
    </section>
  );
}

function PullCard({ pull, act }: { pull: Pull; act: (path: string, method?: string) => void }) {
  const path = `api/pulls/${pull.number}`;
  const { completed, total, phase } = pull;
  const share = total ? Math.min(1, (completed ?? 0) / total) : null;
  const amount = total ? words.amount(size(completed ?? 0), size(total), Math.floor(100 * (share ?? 0))) : "";
  const of = (action: string) => texts.models.of(action, pull.model);
  return (
    <li class="card" data-testid="pull" data-model={pull.model} data-phase={phase}>
      <h3>{pull.name ?? pull.model}</h3>
      <div class="facts">
        {words.phase[phase] && <span class={phase === "done" ? "chip good" : phase === "failed" ? "chip bad" : "chip"}>{words.phase[phase]}</span>}
        <span role={phase === "failed" ? "alert" : undefined}>{pull.error ?? (phase === "done" ? "" : pull.status)}</span>
      </div>
      <div class="row">
        {phase !== "done" && phase !== "failed" && (
          <Progress label={words.progress(pull.model)} value={phase === "paused" ? (share ?? 0) : share}>
            {amount}
          </Progress>
        )}
        {phase === "running" && (
          <Button aria-label={of(words.pause)} onClick={() => act(`${path}/pause`)} testid="pull-pause">
            {words.pause}
          </Button>
        )}
        {(phase === "paused" || phase === "failed") && (
          <Button aria-label={of(phase === "paused" ? words.resume : words.again)} onClick={() => act(`${path}/resume`)} testid="pull-resume">
            {phase === "paused" ? words.resume : words.again}
          </Button>
        )}
        <Button kind="quiet" aria-label={of(phase === "done" ? words.forget : words.cancel)} onClick={() => act(path, "DELETE")} testid="pull-cancel">
          {phase === "done" ? words.forget : words.cancel}
        </Button>
      </div>
    </li>
  );
}
