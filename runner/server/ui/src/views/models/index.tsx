import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Button } from "../../components/button.tsx";
import { Notice } from "../../components/notice.tsx";
import { size } from "../../format.ts";
import { usePolled } from "../../poll.ts";
import { go, place } from "../../router.ts";
import { texts } from "../../texts.en.ts";
import { Create, type Draft } from "./create.tsx";
import { library, space } from "./data.ts";
import { Details } from "./details.tsx";
import { ModelCard } from "./model_card.tsx";
import { Pulls } from "./pulls.tsx";
import { hasFiles, Upload } from "./upload.tsx";
import { Upkeep } from "./upkeep.tsx";

const words = texts.models;
const REFRESH_MS = 3000;

export default function Models() {
  const found = usePolled(library, REFRESH_MS);
  const disk = usePolled(space, 0);
  const draft = useSignal<Draft | null>(null);
  const upkeep = useSignal(false);
  const dropped = useSignal<File[]>([]);
  const over = useSignal(false);
  const names = found.value?.models.map((model) => model.name).join();
  useEffect(disk.again, [names]);
  const isAdmin = disk.error?.status !== 403; // what changes the store needs that scope
  const again = () => {
    found.again();
    disk.again();
  };
  const shown = found.value?.models.find((model) => model.name === place.value.item);
  return (
    <section
      class={over.value ? "view drop-target" : "view"}
      data-testid="view-models"
      onDragOver={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        over.value = true;
      }}
      onDragLeave={() => (over.value = false)}
      onDrop={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        over.value = false;
        dropped.value = [...(event.dataTransfer?.files ?? [])];
      }}
    >
      <header>
        <h1>{words.title}</h1>
        {disk.value && <small>{words.total(size(disk.value.total), disk.value.free === null ? "?" : size(disk.value.free))}</small>}
      </header>
      {found.error && <Notice error={found.error} onRetry={again} />}
      <section aria-labelledby="models-list">
        <h2 id="models-list" class="unseen">
          {words.list}
        </h2>
        {found.value?.models.length === 0 && <p>{words.none}</p>}
        <ul class="cards" data-testid="models">
          {found.value?.models.map((model) => (
            <ModelCard key={model.name} model={model} running={found.value?.running.find((each) => each.name === model.name)} isAdmin={isAdmin} loads={loadsOf(found.value?.running)} onChange={again} />
          ))}
        </ul>
      </section>
      <Pulls onDone={again} />
      {isAdmin && (
        <>
          <Upload files={dropped} onSent={(sent) => (draft.value = sent)} />
          <section class="row">
            <Button icon="edit" onClick={() => (draft.value = { name: "", modelfile: words.create.template, files: {} })} testid="create-open">
              {words.create.open}
            </Button>
            <Button icon="tool" onClick={() => (upkeep.value = true)} testid="upkeep-open">
              {words.upkeep.open}
            </Button>
          </section>
        </>
      )}
      {shown && <Details model={shown} onClose={() => go("models")} onBase={(made) => (draft.value = made)} onChange={again} />}
      {draft.value && <Create draft={draft.value} onClose={() => (draft.value = null)} onDone={again} />}
      {upkeep.value && <Upkeep onClose={() => (upkeep.value = false)} onDone={again} />}
    </section>
  );
}

/** Changes whenever a plan may: with what is in memory. */
const loadsOf = (running: { name: string; state: string }[] = []) => running.map(({ name, state }) => `${name} ${state}`).join();
