// A file of this browser's machine on its way to the daemon, which tells its digest.
import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { apiKey, messageOf, needsKey } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Progress } from "../../components/progress.tsx";
import { toast } from "../../components/toast.tsx";
import { size } from "../../format.ts";
import { texts } from "../../texts.en.ts";
import type { Draft } from "./create.tsx";

const words = texts.models.upload;

interface Sending {
  file: string;
  sent: number;
  total: number;
  request: XMLHttpRequest;
}

export const hasFiles = (event: DragEvent) => [...(event.dataTransfer?.types ?? [])].includes("Files");

export function Upload({ files, onSent }: { files: Signal<File[]>; onSent: (draft: Draft) => void }) {
  const sending = useSignal<Sending | null>(null);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (files.value.length && !sending.value) sendAll(files.value);
    files.value = [];
  }, [files.value]);
  const sendAll = async (given: File[]) => {
    const found: Record<string, string> = {};
    for (const file of given) {
      const digest = await send(file, sending);
      if (digest === null) return;
      found[file.name] = digest;
    }
    const first = given[0];
    if (!first) return;
    const name = first.name.replace(/\.gguf$/i, "").replace(/-\d{5}-of-\d{5}$/, "").toLowerCase();
    toast(words.sent(first.name));
    onSent({ name, modelfile: `FROM ./${first.name}\n`, files: found });
  };
  return (
    <section aria-labelledby="upload-title">
      <h2 id="upload-title">{words.title}</h2>
      {sending.value ? (
        <div class="row" data-testid="upload-progress">
          <Progress label={words.sending(sending.value.file)} value={sending.value.total ? sending.value.sent / sending.value.total : null}>
            {`${words.sending(sending.value.file)}: ${words.amount(size(sending.value.sent), size(sending.value.total))}`}
          </Progress>
          <Button onClick={() => sending.value?.request.abort()} testid="upload-cancel">
            {words.cancel}
          </Button>
        </div>
      ) : (
        <div class="row">
          <span class="quiet">{words.drop}</span>
          <Button icon="upload" onClick={() => input.current?.click()}>
            {words.choose}
          </Button>
          <input
            ref={input}
            type="file"
            accept=".gguf"
            multiple
            hidden
            aria-label={words.choose}
            data-testid="upload-file"
            onChange={(event) => {
              files.value = [...(event.currentTarget.files ?? [])];
              event.currentTarget.value = "";
            }}
          />
        </div>
      )}
    </section>
  );
}

/** The digest of a file that has arrived; null: it has not. fetch tells no progress of what it sends. */
function send(file: File, sending: Signal<Sending | null>): Promise<string | null> {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    const end = (digest: string | null, problem?: string) => {
      sending.value = null;
      if (problem) toast(problem, "error");
      resolve(digest);
    };
    request.open("POST", "api/blobs/upload");
    request.setRequestHeader("content-type", "application/octet-stream");
    if (apiKey.value) request.setRequestHeader("authorization", `Bearer ${apiKey.value}`);
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => (sending.value = { file: file.name, sent: loaded, total, request });
    request.onload = () => {
      if (request.status === 401) needsKey.value = true;
      if (request.status === 200) end(request.response.digest);
      else end(null, messageOf(request.response).message || texts.errors.status(request.status));
    };
    request.onerror = () => end(null, texts.errors.unreachable);
    request.onabort = () => end(null);
    sending.value = { file: file.name, sent: 0, total: file.size, request };
    request.send(file);
  });
}
