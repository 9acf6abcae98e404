import { useSignal } from "@preact/signals";
import { json } from "../../api.ts";
import { Select } from "../../components/field.tsx";
import { Snippet } from "../../components/snippet.tsx";
import { shortName } from "../../format.ts";
import { usePolled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";
import { CLIENTS, type Group } from "./clients.ts";

const words = texts.settings.connect;
const GROUPS: Group[] = ["code", "agents", "apps"];

export function Connect() {
  const models = usePolled(() => json<{ models: { name: string; capabilities: string[] }[] }>("api/tags"), 0);
  const program = useSignal(CLIENTS[0]?.id ?? "");
  const chosen = useSignal("");
  const names = models.value?.models.filter((each) => each.capabilities.includes("completion")).map((each) => shortName(each.name)) ?? [];
  const model = chosen.value || names[0] || "ember";
  const client = CLIENTS.find((each) => each.id === program.value);
  const url = new URL(".", location.href).href.replace(/\/$/, "");
  return (
    <section aria-labelledby="connect-title">
      <h2 id="connect-title">{words.title}</h2>
      <div class="row end">
        <Select label={words.program} value={program.value} onChange={(event) => (program.value = event.currentTarget.value)} testid="connect-program">
          {GROUPS.map((group) => (
            <optgroup key={group} label={words.groups[group]}>
              {CLIENTS.filter((each) => each.group === group).map(({ id, title }) => (
                <option key={id} value={id}>
                  {title}
                </option>
              ))}
            </optgroup>
          ))}
        </Select>
        <Select label={words.model} value={model} onChange={(event) => (chosen.value = event.currentTarget.value)} testid="connect-model">
          {(names.length ? names : [model]).map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </Select>
      </div>
      {client && (
        <div class="connect">
          <p>
            {client.file && words.notes.file(client.file)} {client.untried && words.notes.untried}
          </p>
          <Snippet label={client.title} text={client.text({ url, key: words.key, model })} testid="connect-snippet" />
        </div>
      )}
    </section>
  );
}
