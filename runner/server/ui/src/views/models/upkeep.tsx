// The care of the store: fsck and gc.
import { useSignal } from "@preact/signals";
import { json, lines } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Dialog } from "../../components/dialog.tsx";
import { Checkbox } from "../../components/field.tsx";
import { Progress } from "../../components/progress.tsx";
import { Table } from "../../components/table.tsx";
import { toast, toastError } from "../../components/toast.tsx";
import { size } from "../../format.ts";
import { texts } from "../../texts.en.ts";

const words = texts.models.upkeep;

interface FoundLine {
  finding?: { path: string; message: string; damage: boolean };
  outcome?: { path: string; mended: boolean; reason?: string };
  status?: string;
  completed?: number;
  total?: number;
  models?: number;
  blobs?: number;
  findings?: number;
  damaged?: number;
  mended?: number;
}

interface Garbage {
  blobs: unknown[];
  partials: unknown[];
  size: number;
  skipped: string | null;
}

export function Upkeep({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  return (
    <Dialog wide title={words.title} onClose={onClose} testid="upkeep-dialog">
      <Check onDone={onDone} />
      <CleanUp onDone={onDone} />
    </Dialog>
  );
}

function Check({ onDone }: { onDone: () => void }) {
  const quick = useSignal(true);
  const repair = useSignal(false);
  const running = useSignal<FoundLine | null>(null);
  const seen = useSignal<FoundLine[]>([]);
  const check = async () => {
    seen.value = [];
    running.value = {};
    try {
      for await (const line of lines<FoundLine>("api/fsck", { body: { quick: quick.value, repair: repair.value } })) {
        if (line.finding || line.outcome || line.status === "success") seen.value = [...seen.value, line];
        else running.value = line;
      }
    } catch (error) {
      toastError(error);
    }
    running.value = null;
    onDone();
  };
  const sums = seen.value.find((line) => line.status === "success");
  const findings = seen.value.flatMap((line) => line.finding ?? []);
  const outcomes = new Map(seen.value.flatMap((line) => (line.outcome ? [[line.outcome.path, line.outcome]] : [])));
  return (
    <section>
      <h3>{words.check}</h3>
      <Checkbox label={words.quick} checked={quick.value} onChange={(event) => (quick.value = event.currentTarget.checked)} testid="fsck-quick" />
      <Checkbox label={words.repair} checked={repair.value} onChange={(event) => (repair.value = event.currentTarget.checked)} testid="fsck-repair" />
      <div class="row">
        <Button disabled={running.value !== null} onClick={check} testid="fsck-start">
          {words.check}
        </Button>
        {running.value && (
          <Progress label={words.check} value={running.value.total ? (running.value.completed ?? 0) / running.value.total : null}>
            {running.value.status}
          </Progress>
        )}
      </div>
      {sums && (
        <p role="status" data-testid="fsck-result">
          {sums.findings ? words.summary(sums.findings, sums.damaged ?? 0, sums.mended ?? 0) : words.sound(sums.models ?? 0, sums.blobs ?? 0)}
        </p>
      )}
      {findings.length > 0 && (
        <Table caption={words.findings} columns={[{ title: words.file }, { title: words.finding }]} testid="fsck-findings">
          {findings.map(({ path, message }) => {
            const outcome = outcomes.get(path);
            return (
              <tr key={path + message}>
                <td>{path}</td>
                <td>
                  {message}
                  {outcome && ` (${outcome.mended ? words.repaired : words.left(outcome.reason ?? "")})`}
                </td>
              </tr>
            );
          })}
        </Table>
      )}
    </section>
  );
}

function CleanUp({ onDone }: { onDone: () => void }) {
  const found = useSignal<Garbage | null>(null);
  const collect = async (dryRun: boolean) => {
    try {
      const result = await json<Garbage>("api/gc", { body: { dry_run: dryRun } });
      if (!dryRun) toast(words.removed(size(result.size)));
      found.value = dryRun ? result : null;
      if (!dryRun) onDone();
    } catch (error) {
      toastError(error);
    }
  };
  const files = (found.value?.blobs.length ?? 0) + (found.value?.partials.length ?? 0);
  return (
    <section>
      <h3>{words.clean}</h3>
      <div class="row">
        <Button onClick={() => collect(true)} testid="gc-look">
          {words.look}
        </Button>
        {files > 0 && (
          <Button kind="danger" onClick={() => collect(false)} testid="gc-remove">
            {words.remove(size(found.value?.size ?? 0))}
          </Button>
        )}
      </div>
      {found.value && (
        <p role="status" data-testid="gc-result">
          {found.value.skipped ?? (files ? words.removable(files, size(found.value.size)) : words.nothing)}
        </p>
      )}
    </section>
  );
}
