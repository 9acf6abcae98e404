// Codex against a daemon, as a user sets it up: a provider of its own in config.toml.
import { assert, run, UNKNOWN } from "../node/checking.mjs";
import { AGENT, called, events, installed } from "./running.mjs";

const PROGRAM = installed(
  "@openai", "codex-linux-x64", "vendor", "x86_64-unknown-linux-musl", "bin", "codex",
);
const config = (url, model) => `
model = "${model}"
model_provider = "hearth"

[analytics]
enabled = false

[model_providers.hearth]
name = "hearth"
base_url = "${url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
`;

const ask = (url, prompt, model = AGENT) => events(
  PROGRAM,
  ["exec", "--skip-git-repo-check", "--json", "--sandbox", "danger-full-access", prompt],
  {},
  { ".codex/config.toml": config(url, model) },
);
const items = (told) => told
  .filter(({ type }) => type === "item.completed")
  .map(({ item }) => item);

async function a_prompt_is_answered_with_usage(url) {
  const told = await ask(url, "Say hello.");
  const said = items(told).filter(({ type }) => type === "agent_message");
  assert.deepEqual(said.map(({ text }) => text), ["Say hello."]);
  const { type, usage } = told.at(-1);
  assert.equal(type, "turn.completed");
  assert.ok(usage.input_tokens > 1000 && usage.output_tokens > 0);
}

async function a_tool_is_run_and_its_result_answered(url) {
  const told = items(await ask(url, called("exec_command", { cmd: "echo made by a tool" })));
  const done = told.find(({ type }) => type === "command_execution");
  assert.equal(done.exit_code, 0, JSON.stringify(done));
  assert.match(done.aggregated_output, /made by a tool/);
  const said = told.find(({ type }) => type === "agent_message");
  assert.match(said.text, /made by a tool/);
}

async function a_tool_of_a_namespace_is_run(url) {
  const call = called("multi_agent_v1_close_agent", { target: "nobody" });
  const said = items(await ask(url, call)).find(({ type }) => type === "agent_message");
  assert.match(said.text, /nobody/);
  assert.doesNotMatch(said.text, /unsupported|tool_call/);
}

async function an_unknown_model_is_not_found(url) {
  const last = (await ask(url, "hi", UNKNOWN)).at(-1);
  assert.equal(last.type, "turn.failed");
  assert.match(last.error.message, /not found, try pulling it first/);
}

await run(
  a_prompt_is_answered_with_usage,
  a_tool_is_run_and_its_result_answered,
  a_tool_of_a_namespace_is_run,
  an_unknown_model_is_not_found,
);
