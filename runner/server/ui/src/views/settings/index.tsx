import { usePolled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";
import { Connect } from "./connect.tsx";
import { type DaemonSettings, daemonSettings } from "./data.ts";
import { Keys } from "./keys.tsx";
import { Values } from "./values.tsx";

export default function Settings() {
  const settings = usePolled<DaemonSettings>(daemonSettings, 0);
  return (
    <section class="view" data-testid="view-settings">
      <header>
        <h1>{texts.settings.title}</h1>
      </header>
      <Keys />
      <Connect />
      <Values settings={settings} />
    </section>
  );
}
