import { texts } from "../../texts.en.ts";

export default function Chat() {
  return (
    <section class="view" data-testid="view-chat">
      <h1>{texts.nav.chat}</h1>
    </section>
  );
}
