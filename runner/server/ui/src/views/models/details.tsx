// All that is known of one model, and the memory of other contexts.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { json } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Dialog } from "../../components/dialog.tsx";
import { TextField } from "../../components/field.tsx";
import { toast, toastError } from "../../components/toast.tsx";
import { count, shortName, size } from "../../format.ts";
import { texts } from "../../texts.en.ts";
import type { Draft } from "./create.tsx";
import { type Installed, load, type Plan, planOf } from "./data.ts";
import { planText } from "./model_card.tsx";

const words = texts.models.show;

interface Shown {
  license: string;
  modelfile: string;
  parameters: string;
  template: string;
  system: string;
  model_info: Record<string, unknown>;
  capabilities: string[];
  digest: string;
}

interface Given {
  model: Installed;
  onClose: () => void;
  onBase: (draft: Draft) => void;
  onChange: () => void;
}

export function Details({ model, onClose, onBase, onChange }: Given) {
  const shown = useSignal<Shown | null>(null);
  const name = shortName(model.name);
  useEffect(() => {
    json<Shown>("api/show", { body: { model: model.name } }).then((found) => (shown.value = found), toastError);
  }, [model.digest]);
  const base = () => {
    onBase({ name: "", modelfile: `FROM ${name}\n`, files: {} });
    onClose();
  };
  const info = shown.value;
  return (
    <Dialog
      wide
      title={name}
      onClose={onClose}
      testid="details-dialog"
      actions={
        <Button icon="edit" onClick={base} testid="details-base">
          {words.base}
        </Button>
      }
    >
      <h3>{words.about}</h3>
      <dl class="facts-table">
        <Fact title={words.architecture}>{model.details.family}</Fact>
        <Fact title={words.parameters}>{model.details.parameter_size}</Fact>
        <Fact title={words.quantization}>{model.details.quantization_level}</Fact>
        <Fact title={words.context}>{model.details.context_length ? count(model.details.context_length) : ""}</Fact>
        <Fact title={words.size}>{size(model.size)}</Fact>
        <Fact title={words.capabilities}>{model.capabilities.join(", ")}</Fact>
        <Fact title={words.digest}>
          <code>{model.digest.slice(0, 12)}</code>
        </Fact>
      </dl>
      {!model.fault && <Memory model={model} onChange={onChange} />}
      {info && (
        <>
          <Text title={words.set} text={info.parameters} testid="details-parameters" />
          <Text title={words.system} text={info.system} testid="details-system" />
          <Text title={words.template} text={info.template} testid="details-template" />
          <Text title={words.licence} text={info.license} testid="details-licence" />
          <Text title={words.modelfile} text={info.modelfile} testid="details-modelfile" />
        </>
      )}
    </Dialog>
  );
}

function Memory({ model, onChange }: { model: Installed; onChange: () => void }) {
  const context = useSignal("");
  const plan = useSignal<Plan | null>(null);
  const busy = useSignal(false);
  const wanted = Number.parseInt(context.value, 10) || undefined;
  useEffect(() => {
    let ended = false;
    const timer = setTimeout(() => {
      planOf(model.name, wanted).then(
        (found) => !ended && (plan.value = found),
        (error) => !ended && toastError(error),
      );
    }, 250);
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [wanted]);
  const start = async () => {
    busy.value = true;
    try {
      await load(model, undefined, wanted);
      toast(texts.models.loaded(shortName(model.name)));
    } catch (error) {
      toastError(error);
    }
    busy.value = false;
    onChange();
  };
  const found = plan.value;
  const part = texts.models.plan;
  return (
    <>
      <h3>{words.memory}</h3>
      <div class="row end">
        <TextField label={words.contextField} hint={words.contextHint} type="number" min={1} step={1} value={context.value} onInput={(event) => (context.value = event.currentTarget.value)} testid="details-context" />
        <Button disabled={busy.value || found?.fits === "never"} onClick={start} testid="details-load">
          {words.loadWith}
        </Button>
      </div>
      <p role="status" data-testid="details-plan">
        {found ? planText(found) : part.asking}
        {found?.context_length && (
          <small>
            {" "}
            ({part.parts(size(found.weights), size(found.cache), size(found.compute))}
            {found.swap > 0 && `, ${part.swap(size(found.swap))}`}; {part.context(count(found.context_length))})
          </small>
        )}
      </p>
    </>
  );
}

function Fact({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{title}</dt>
      <dd>{children || words.nothing}</dd>
    </>
  );
}

function Text({ title, text, testid }: { title: string; text: string; testid: string }) {
  return (
    <details data-testid={testid}>
      <summary>
        {title} {!text && <span class="quiet">({words.nothing})</span>}
      </summary>
      {text && (
        <pre class="text" tabindex={0} role="region" aria-label={title}>
          {text}
        </pre>
      )}
    </details>
  );
}
