import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Confirm } from "../../components/dialog.tsx";
import { toast, toastError } from "../../components/toast.tsx";
import { duration, shortName, size } from "../../format.ts";
import { go } from "../../router.ts";
import { texts } from "../../texts.en.ts";
import { type Installed, isPinned, load, type Plan, planOf, type Running, space, unload } from "./data.ts";

const words = texts.models;
const UNPINNED_S = 300;

export function planText({ fits, needed, free }: Plan): string {
  return fits === "loaded" ? words.plan.loaded(size(needed)) : words.plan[fits](size(needed), size(free));
}

interface Given {
  model: Installed;
  running?: Running;
  /** What is in memory; plans change with it. */
  loads: string;
  isAdmin: boolean;
  onChange: () => void;
}

export function ModelCard({ model, running, loads, isAdmin, onChange }: Given) {
  const plan = useSignal<Plan | null>(null);
  const busy = useSignal(false);
  const deleting = useSignal(false);
  const name = shortName(model.name);
  useEffect(() => {
    if (model.fault) return;
    let ended = false;
    planOf(model.name).then(
      (found) => !ended && (plan.value = found),
      () => !ended && (plan.value = null),
    );
    return () => {
      ended = true;
    };
  }, [model.digest, loads]);
  const act = async (work: () => Promise<unknown>, done?: string) => {
    busy.value = true;
    try {
      await work();
      if (done) toast(done);
    } catch (error) {
      toastError(error);
    }
    busy.value = false;
    onChange();
  };
  const pinned = running !== undefined && isPinned(running);
  const state = running === undefined ? "unloaded" : pinned ? "pinned" : running.state;
  const label = (action: string) => words.of(action, name);
  return (
    <li class="card" data-testid="model" data-model={model.name}>
      <h3>
        {name} <span class={running ? "chip good" : "chip"} data-testid="model-state">{busy.value && !running ? words.state.loading : words.state[state]}</span>
      </h3>
      <div class="facts">
        <span>{size(model.size)}</span>
        {![undefined, "", "0"].includes(model.details.parameter_size) && <span>{words.parameters(model.details.parameter_size)}</span>}
        {model.details.quantization_level && <span>{model.details.quantization_level}</span>}
        {model.capabilities.length > 0 && <span>{model.capabilities.join(", ")}</span>}
        {!model.fault && <span class={plan.value?.fits === "never" ? "chip bad" : ""} data-testid="model-plan">{plan.value ? planText(plan.value) : words.plan.asking}</span>}
        {running && <span>{pinned ? words.stays : words.leaves(duration(Math.max(0, (Date.parse(running.expires_at) - Date.now()) / 1000)))}</span>}
      </div>
      {model.fault && <p class="chip bad">{model.fault}</p>}
      {model.crashes && <p>{words.crashes(model.crashes)}</p>}
      <div class="row">
        {running ? (
          <Button disabled={busy.value} aria-label={label(words.unload)} onClick={() => act(() => unload(model.name), words.unloaded(name))} testid="model-unload">
            {words.unload}
          </Button>
        ) : (
          <Button disabled={busy.value || Boolean(model.fault)} aria-label={label(words.load)} onClick={() => act(() => load(model), words.loaded(name))} testid="model-load">
            {words.load}
          </Button>
        )}
        <Button disabled={busy.value || Boolean(model.fault)} aria-pressed={pinned} aria-label={label(words.pin)} onClick={() => act(() => load(model, pinned ? UNPINNED_S : -1))} testid="model-pin">
          {pinned ? words.unpin : words.pin}
        </Button>
        <Button kind="quiet" aria-label={label(words.details)} onClick={() => go("models", model.name)} testid="model-details">
          {words.details}
        </Button>
        {isAdmin && (
          <Button kind="quiet" icon="trash" aria-label={label(words.remove)} onClick={() => (deleting.value = true)} testid="model-delete">
            {words.remove}
          </Button>
        )}
      </div>
      {deleting.value && <Delete model={model} onClose={() => (deleting.value = false)} onDone={onChange} />}
    </li>
  );
}

function Delete({ model, onClose, onDone }: { model: Installed; onClose: () => void; onDone: () => void }) {
  const freed = useSignal<{ own: number; shared: number } | null>(null);
  const name = shortName(model.name);
  useEffect(() => {
    space().then(({ models }) => (freed.value = models.find((each) => shortName(each.name) === name) ?? null), toastError);
  }, []);
  const remove = async () => {
    try {
      await ask("api/delete", { method: "DELETE", body: { model: model.name } });
      toast(words.delete.done(name, size(freed.value?.own ?? model.size)));
    } catch (error) {
      toastError(error);
    }
    onClose();
    onDone();
  };
  const body = freed.value && (
    <>
      {words.delete.frees(size(freed.value.own))} {freed.value.shared > 0 && words.delete.shared(size(freed.value.shared))}
    </>
  );
  return <Confirm title={words.delete.title(name)} body={body} yes={words.delete.yes} onYes={remove} onClose={onClose} testid="delete-dialog" />;
}
