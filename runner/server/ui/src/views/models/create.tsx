// An editor for a Modelfile: what the daemon finds in it is shown where it stands.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, json, lines } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Dialog } from "../../components/dialog.tsx";
import { TextField } from "../../components/field.tsx";
import { Progress } from "../../components/progress.tsx";
import { toast } from "../../components/toast.tsx";
import { texts } from "../../texts.en.ts";
import { Editor, type Finding } from "./editor.tsx";

const words = texts.models.create;
const CHECK_MS = 300;

export interface Draft {
  name: string;
  modelfile: string;
  /** Digests of uploaded files by their names. */
  files: Record<string, string>;
}

interface Checked {
  errors: Finding[];
  notes: Finding[];
  request: Record<string, unknown> | null;
}

interface Step {
  status: string;
  completed?: number;
  total?: number;
}

export function Create({ draft, onClose, onDone }: { draft: Draft; onClose: () => void; onDone: () => void }) {
  const name = useSignal(draft.name);
  const modelfile = useSignal(draft.modelfile);
  const checked = useSignal<Checked | null>(null);
  const problem = useSignal("");
  const step = useSignal<Step | null>(null);
  useEffect(() => {
    const asked = new AbortController();
    const timer = setTimeout(() => {
      json<Checked>("api/check", { body: { modelfile: modelfile.value, files: draft.files }, signal: asked.signal }).then(
        (found) => (checked.value = found),
        (error) => asked.signal.aborted || (problem.value = error.message),
      );
    }, CHECK_MS);
    return () => {
      clearTimeout(timer);
      asked.abort();
    };
  }, [modelfile.value]);
  const edit = (text: string) => {
    modelfile.value = text;
    checked.value = null;
  };
  const create = async () => {
    const request = checked.value?.request;
    if (!request || !name.value.trim()) return;
    problem.value = "";
    step.value = { status: words.working };
    try {
      for await (const each of lines<Step>("api/create", { body: { model: name.value.trim(), ...request } })) step.value = each;
      toast(words.done(name.value.trim()));
      onDone();
      onClose();
    } catch (error) {
      problem.value = error instanceof ApiError ? error.message : String(error);
      step.value = null;
    }
  };
  const found = [...(checked.value?.errors ?? []).map((each) => ({ ...each, kind: "error" as const })), ...(checked.value?.notes ?? []).map((each) => ({ ...each, kind: "note" as const }))];
  const state = checked.value === null ? words.checking : checked.value.errors.length ? words.errors(checked.value.errors.length) : words.sound;
  return (
    <Dialog
      wide
      title={words.title}
      testid="create-dialog"
      onClose={onClose}
      onSubmit={create}
      actions={
        <>
          <Button onClick={onClose}>{texts.common.cancel}</Button>
          <Button kind="primary" type="submit" disabled={!checked.value?.request || !name.value.trim() || step.value !== null} testid="create-submit">
            {words.create}
          </Button>
        </>
      }
    >
      <TextField label={words.name} value={name.value} required autocomplete="off" spellcheck={false} onInput={(event) => (name.value = event.currentTarget.value)} testid="create-name" />
      {Object.keys(draft.files).length > 0 && (
        <p>
          {words.files}: {Object.keys(draft.files).join(", ")}
        </p>
      )}
      <Editor label={words.modelfile} text={modelfile.value} findings={found} state={state} onInput={edit} />
      {step.value && (
        <Progress label={words.working} value={step.value.total ? (step.value.completed ?? 0) / step.value.total : null}>
          {step.value.status}
        </Progress>
      )}
      {problem.value && (
        <p class="notice" role="alert" data-testid="create-problem">
          {problem.value}
        </p>
      )}
    </Dialog>
  );
}
