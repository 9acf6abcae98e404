import { texts } from "../../texts.en.ts";

export default function Settings() {
  return (
    <section class="view" data-testid="view-settings">
      <h1>{texts.settings.title}</h1>
    </section>
  );
}
