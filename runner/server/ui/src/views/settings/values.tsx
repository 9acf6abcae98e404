import { useSignal } from "@preact/signals";
import { Checkbox } from "../../components/field.tsx";
import { Notice } from "../../components/notice.tsx";
import { Table } from "../../components/table.tsx";
import type { Polled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";
import type { DaemonSettings } from "./data.ts";

const words = texts.settings.values;

export function Values({ settings }: { settings: Polled<DaemonSettings> }) {
  const all = useSignal(false);
  const found = settings.value;
  const shown = found?.settings.filter((each) => all.value || each.source !== null) ?? [];
  return (
    <section>
      <h2>{words.title}</h2>
      {settings.error && <Notice error={settings.error} onRetry={settings.again} />}
      {found && (
        <>
          <p>{words.intro(found.file)}</p>
          <Checkbox label={words.all} checked={all.value} onChange={(event) => (all.value = event.currentTarget.checked)} testid="settings-all" />
          {shown.length === 0 && <p class="quiet">{words.none}</p>}
          {shown.length > 0 && (
            <Table caption={words.title} columns={[{ title: words.setting }, { title: words.value }, { title: words.source }, { title: words.meaning }]} testid="settings">
              {shown.map(({ name, variable, value, source, overrides, doc }) => (
                <tr key={variable} data-testid="setting" data-name={name}>
                  <th scope="row">
                    <code>{name}</code>
                  </th>
                  <td>
                    <code>{value || words.empty}</code>
                  </td>
                  <td>
                    {source ?? words.default}
                    {overrides.length > 1 && <small> {words.overrides(overrides.slice(0, -1).join(", "))}</small>}
                  </td>
                  <td>
                    <small>{doc}</small>
                  </td>
                </tr>
              ))}
            </Table>
          )}
          <h3>{words.folders}</h3>
          <dl class="facts-table">
            {Object.entries(found.folders).map(([name, path]) => (
              <>
                <dt key={name}>{name}</dt>
                <dd>
                  <code>{path}</code>
                </dd>
              </>
            ))}
          </dl>
        </>
      )}
    </section>
  );
}
