// The settings of one conversation, beside what the model has of its own.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { json } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Dialog } from "../../components/dialog.tsx";
import { Checkbox, Select, TextArea, TextField } from "../../components/field.tsx";
import { texts } from "../../texts.en.ts";
import { type ChatSettings, emptySettings, PARAMETER_RANGES, type Parameters } from "./model.ts";
import { shownModel } from "./models.ts";
import { changeSettings, settingsNow } from "./threads.ts";

const t = texts.chat;
type Figure = keyof typeof PARAMETER_RANGES;
/** What the Modelfile calls it, where that differs. */
const MODELFILE_NAMES: Partial<Record<Figure, string>> = { max_tokens: "num_predict" };

/** What counts where the model has no value of its own: the defaults of Modelfiles. */
const DEFAULTS: Partial<Record<Figure, string>> = { temperature: "0.8", top_p: "0.9", top_k: "40", min_p: "0", repeat_penalty: "1", seed: t.randomSeed, max_tokens: t.noLimit };

interface McpServers {
  path: string;
  servers: { name: string; transport: string }[];
}

/** Whether a conversation has settings of its own. */
export function isChanged(settings: ChatSettings): boolean {
  const { model, second, ...own } = settings;
  const { model: _, second: __, ...empty } = emptySettings();
  return JSON.stringify(own) !== JSON.stringify(empty);
}

export function SettingsDialog({ onClose }: { onClose: () => void }) {
  const draft = useSignal<ChatSettings>(structuredClone(settingsNow()));
  const servers = useSignal<McpServers | null>(null);
  const { model, system, parameters, reasoning, schema } = draft.value;
  const known = shownModel(model);
  const change = (more: Partial<ChatSettings>) => (draft.value = { ...draft.value, ...more });
  const set = (name: keyof Parameters, value: Parameters[keyof Parameters]) => {
    const { [name]: _, ...others } = draft.value.parameters;
    change({ parameters: value === undefined ? others : { ...others, [name]: value } });
  };
  useEffect(() => {
    json<McpServers>("api/mcp").then((found) => (servers.value = found), () => {});
  }, []);
  const fault = schemaFault(schema);
  const submit = () => {
    if (fault) return;
    changeSettings(draft.value);
    onClose();
  };
  return (
    <Dialog
      title={t.settings}
      wide
      testid="settings-dialog"
      onClose={onClose}
      onSubmit={submit}
      actions={
        <>
          <Button kind="quiet" testid="settings-reset" onClick={() => change({ ...emptySettings(model), second: draft.value.second })}>
            {t.reset}
          </Button>
          <Button kind="primary" type="submit" testid="settings-apply">
            {t.apply}
          </Button>
        </>
      }
    >
      <TextArea label={t.system} rows={3} value={system} testid="system" hint={known?.system ? t.systemOwn(known.system) : t.systemHint} onInput={(event) => change({ system: event.currentTarget.value })} />
      <h3>{t.parameters}</h3>
      <p class="quiet">{t.parametersHint}</p>
      <div class="parameters">
        {(Object.keys(PARAMETER_RANGES) as Figure[]).map((name) => (
          <TextField
            key={name}
            type="number"
            label={t.parameterNames[name]}
            testid={`parameter-${name}`}
            {...PARAMETER_RANGES[name]}
            value={parameters[name] ?? ""}
            placeholder={known?.defaults[MODELFILE_NAMES[name] ?? name] ?? DEFAULTS[name] ?? (known?.contextLength ? String(known.contextLength) : "")}
            onInput={(event) => set(name, event.currentTarget.value === "" ? undefined : event.currentTarget.valueAsNumber)}
          />
        ))}
        <Select label={t.reasoning} value={reasoning} testid="reasoning-level" onChange={(event) => change({ reasoning: event.currentTarget.value })}>
          {Object.entries(t.reasoningLevels).map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </Select>
      </div>
      <TextArea
        label={t.stopTexts}
        rows={2}
        testid="parameter-stop"
        value={(parameters.stop ?? []).join("\n")}
        placeholder={known?.defaults.stop}
        onInput={(event) => set("stop", event.currentTarget.value ? event.currentTarget.value.split("\n") : undefined)}
      />
      <TextArea label={t.schema} rows={4} class="mono" spellcheck={false} value={schema} testid="schema" hint={t.schemaHint} error={fault} onInput={(event) => change({ schema: event.currentTarget.value })} />
      <Tools servers={servers.value} chosen={draft.value.servers} onChange={(chosen) => change({ servers: chosen })} />
    </Dialog>
  );
}

function schemaFault(schema: string): string | undefined {
  if (!schema.trim()) return undefined;
  try {
    const found: unknown = JSON.parse(schema);
    return found && typeof found === "object" && !Array.isArray(found) ? undefined : t.schemaForm;
  } catch (error) {
    return t.schemaBad((error as Error).message);
  }
}

function Tools({ servers, chosen, onChange }: { servers: McpServers | null; chosen: string[]; onChange: (chosen: string[]) => void }) {
  if (!servers) return null;
  return (
    <fieldset class="tools" data-testid="mcp-servers">
      <legend>{t.tools}</legend>
      <p class="quiet">{servers.servers.length ? t.toolsHint : t.noTools(servers.path)}</p>
      {servers.servers.map(({ name, transport }) => (
        <Checkbox
          key={name}
          label={`${name} (${transport})`}
          testid={`mcp-${name}`}
          checked={chosen.includes(name)}
          onChange={(event) => onChange(event.currentTarget.checked ? [...chosen, name] : chosen.filter((each) => each !== name))}
        />
      ))}
    </fieldset>
  );
}
