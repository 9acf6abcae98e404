import { useSignal } from "@preact/signals";
import { apiKey, ask, json, useKey } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Confirm, Dialog } from "../../components/dialog.tsx";
import { Select, TextField } from "../../components/field.tsx";
import { Notice } from "../../components/notice.tsx";
import { Snippet } from "../../components/snippet.tsx";
import { Table } from "../../components/table.tsx";
import { toastError } from "../../components/toast.tsx";
import { usePolled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";
import { apiKeys } from "./data.ts";

const words = texts.settings.keys;
const SCOPES = ["inference", "pull", "metrics", "admin"] as const;

interface Made {
  name: string;
  key: string;
}

export function Keys() {
  const found = usePolled(apiKeys, 0);
  const name = useSignal("");
  const chosen = useSignal("");
  const made = useSignal<Made | null>(null);
  const removing = useSignal<string | null>(null);
  // The first key closes the daemon to this page, which goes on with it.
  const scope = chosen.value || (found.value?.length ? "inference" : "admin");
  const make = async (event: Event) => {
    event.preventDefault();
    try {
      made.value = await json<Made>("api/keys", { body: { name: name.value.trim(), scopes: [scope] } });
      name.value = chosen.value = "";
    } catch (error) {
      toastError(error);
    }
    if (found.value?.length) found.again();
  };
  const remove = async (which: string) => {
    try {
      await ask(`api/keys/${encodeURIComponent(which)}`, { method: "DELETE" });
    } catch (error) {
      toastError(error);
    }
    removing.value = null;
    found.again();
  };
  const said = (each: string) => words.scope[each as keyof typeof words.scope] ?? each;
  return (
    <section>
      <h2>{words.title}</h2>
      {found.error && <Notice error={found.error} onRetry={found.again} />}
      {found.value?.length === 0 && <p>{words.none}</p>}
      {found.value && found.value.length > 0 && (
        <Table caption={words.title} columns={[{ title: words.name }, { title: words.scopes }, { title: words.created }, { title: words.action }]} testid="keys">
          {found.value.map((key) => (
            <tr key={key.name} data-testid="key">
              <th scope="row">{key.name}</th>
              <td>{key.scopes.map(said).join(", ")}</td>
              <td>{new Date(key.created_at).toLocaleDateString("en-CA")}</td>
              <td>
                <Button kind="quiet" icon="trash" aria-label={words.delete(key.name)} onClick={() => (removing.value = key.name)} testid="key-delete">
                  {texts.common.remove}
                </Button>
              </td>
            </tr>
          ))}
        </Table>
      )}
      {found.value && (
        <form class="row end" onSubmit={make}>
          <TextField label={words.name} value={name.value} required maxLength={64} pattern="[A-Za-z0-9][A-Za-z0-9._\-]*" autocomplete="off" onInput={(event) => (name.value = event.currentTarget.value)} testid="key-name" />
          <Select label={words.scopes} value={scope} onChange={(event) => (chosen.value = event.currentTarget.value)} testid="key-scope">
            {SCOPES.map((each) => (
              <option key={each} value={each}>
                {said(each)}
              </option>
            ))}
          </Select>
          <Button type="submit" icon="plus" testid="key-make">
            {words.make}
          </Button>
        </form>
      )}
      {made.value && <MadeKey made={made.value} isFirst={!apiKey.value && !found.value?.length} onClose={() => ((made.value = null), found.again())} />}
      {removing.value && <Confirm title={words.remove(removing.value)} body={words.removing} yes={words.yes} onYes={() => remove(removing.value ?? "")} onClose={() => (removing.value = null)} testid="key-delete-dialog" />}
    </section>
  );
}

function MadeKey({ made, isFirst, onClose }: { made: Made; isFirst: boolean; onClose: () => void }) {
  const use = () => {
    useKey(made.key, false);
    onClose();
  };
  return (
    <Dialog
      title={words.made(made.name)}
      onClose={onClose}
      testid="key-made"
      actions={
        <>
          <Button onClick={use} kind={isFirst ? "primary" : "plain"} testid="key-made-use">
            {words.use}
          </Button>
          <Button onClick={onClose}>{texts.common.close}</Button>
        </>
      }
    >
      <p>
        {words.once} {isFirst && words.first}
      </p>
      <Snippet label={words.made(made.name)} text={made.key} testid="key-text" />
    </Dialog>
  );
}
