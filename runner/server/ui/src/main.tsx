// The entry: the frame with the view that the address names. Chat comes with the page, the others when asked for.
import { signal } from "@preact/signals";
import { type ComponentType, render } from "preact";
import { Frame } from "./frame.tsx";
import { place, type ViewName } from "./router.ts";
import { texts } from "./texts.en.ts";
import "./theme.ts";
import "./theme.css";
import "./views.css";
import { Conversations } from "./views/chat/conversations.tsx";
import Chat from "./views/chat/index.tsx";

type Loaded = ComponentType | "failed";

const LOADERS: Record<Exclude<ViewName, "chat">, () => Promise<{ default: ComponentType }>> = {
  models: () => import("./views/models/index.tsx"),
  activity: () => import("./views/activity/index.tsx"),
  settings: () => import("./views/settings/index.tsx"),
};
const loaded = signal<Partial<Record<ViewName, Loaded>>>({ chat: Chat });
const asked = new Set<ViewName>(["chat"]);

function load(view: ViewName): void {
  if (view === "chat" || asked.has(view)) return;
  asked.add(view);
  const keep = (found: Loaded) => (loaded.value = { ...loaded.value, [view]: found });
  LOADERS[view]().then(
    (module) => keep(module.default),
    () => keep("failed"),
  );
}

function App() {
  const { view } = place.value;
  load(view);
  const View = loaded.value[view];
  document.title = view === "chat" ? texts.name : `${texts.nav[view]} – ${texts.name}`;
  return (
    <Frame aside={<Conversations />}>
      {View === "failed" ? <p class="view">{texts.errors.view}</p> : View ? <View /> : <p class="view quiet">{texts.common.loading}</p>}
    </Frame>
  );
}

const root = document.getElementById("app");
if (root) render(<App />, root);
