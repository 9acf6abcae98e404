// How other programs are pointed at this daemon: what is copied, as those programs want it.
export type Group = "code" | "agents" | "apps";

export interface Place {
  url: string;
  key: string;
  model: string;
}

export interface Client {
  id: string;
  title: string;
  group: Group;
  /** Where the text belongs; a shell or a program without one. */
  file?: string;
  /** Only its requests were tried. */
  untried?: boolean;
  text: (place: Place) => string;
}

const quoted = JSON.stringify;
const shown = (value: unknown) => JSON.stringify(value, null, 2);

export const CLIENTS: Client[] = [
  {
    id: "openai-python",
    title: "OpenAI: Python",
    group: "code",
    text: ({ url, key, model }) => `from openai import OpenAI

client = OpenAI(base_url=${quoted(`${url}/v1`)}, api_key=${quoted(key)})
stream = client.chat.completions.create(
    model=${quoted(model)},
    messages=[{"role": "user", "content": "Hello!"}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
`,
  },
  {
    id: "openai-js",
    title: "OpenAI: JavaScript",
    group: "code",
    text: ({ url, key, model }) => `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${quoted(`${url}/v1`)}, apiKey: ${quoted(key)} });
const stream = await client.chat.completions.create({
  model: ${quoted(model)},
  messages: [{ role: "user", content: "Hello!" }],
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
`,
  },
  {
    id: "curl",
    title: "OpenAI: curl",
    group: "code",
    text: ({ url, key, model }) => `curl ${url}/v1/chat/completions \\
  -H "Authorization: Bearer ${key}" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify({ model, messages: [{ role: "user", content: "Hello!" }] })}'
`,
  },
  {
    id: "anthropic",
    title: "Anthropic: Python",
    group: "code",
    text: ({ url, key, model }) => `from anthropic import Anthropic

client = Anthropic(base_url=${quoted(url)}, api_key=${quoted(key)})
message = client.messages.create(
    model=${quoted(model)},
    max_tokens=1024,
    messages=[{"role": "user", "content": "Hello!"}],
)
print(message.content[0].text)
`,
  },
  {
    id: "ollama",
    title: "Ollama: Python",
    group: "code",
    text: ({ url, key, model }) => `from ollama import Client

client = Client(host=${quoted(url)}, headers={"Authorization": ${quoted(`Bearer ${key}`)}})
answer = client.chat(model=${quoted(model)}, messages=[{"role": "user", "content": "Hello!"}])
print(answer.message.content)
`,
  },
  {
    id: "claude-code",
    title: "Claude Code",
    group: "agents",
    text: ({ url, key, model }) => `ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=${key} claude --model ${model}\n`,
  },
  {
    id: "codex",
    title: "Codex",
    group: "agents",
    file: "~/.codex/config.toml",
    text: ({ url, model }) => `model = ${quoted(model)}
model_provider = "hearth"

[model_providers.hearth]
name = "hearth"
base_url = ${quoted(`${url}/v1`)}
wire_api = "responses"
env_key = "HEARTH_API_KEY"  # the variable with your key
`,
  },
  {
    id: "opencode",
    title: "opencode",
    group: "agents",
    file: "opencode.json",
    untried: true,
    text: ({ url, key, model }) =>
      shown({
        $schema: "https://opencode.ai/config.json",
        model: `hearth/${model}`,
        provider: {
          hearth: {
            npm: "@ai-sdk/openai-compatible",
            name: "hearth",
            options: { baseURL: `${url}/v1`, apiKey: key },
            models: { [model]: { name: model } },
          },
        },
      }),
  },
  {
    id: "continue",
    title: "Continue",
    group: "agents",
    file: "~/.continue/config.yaml",
    untried: true,
    text: ({ url, key, model }) => `name: hearth
version: 1.0.0
schema: v1
models:
  - name: ${quoted(model)}
    provider: openai
    model: ${quoted(model)}
    apiBase: ${quoted(`${url}/v1`)}
    apiKey: ${quoted(key)}
    roles: [chat, edit]
`,
  },
  {
    id: "zed",
    title: "Zed",
    group: "agents",
    file: "~/.config/zed/settings.json",
    untried: true,
    text: ({ url, model }) =>
      shown({
        language_models: {
          openai_compatible: {
            hearth: { api_url: `${url}/v1`, available_models: [{ name: model, display_name: model, max_tokens: 32768 }] },
          },
        },
      }),
  },
  {
    id: "open-webui",
    title: "Open WebUI",
    group: "apps",
    untried: true,
    text: ({ url, key }) => `OPENAI_API_BASE_URL=${url}/v1 OPENAI_API_KEY=${key} open-webui serve\n`,
  },
  {
    id: "langchain",
    title: "LangChain",
    group: "apps",
    text: ({ url, key, model }) => `from langchain_openai import ChatOpenAI

llm = ChatOpenAI(base_url=${quoted(`${url}/v1`)}, api_key=${quoted(key)}, model=${quoted(model)})
print(llm.invoke("Hello!").content)
`,
  },
];
