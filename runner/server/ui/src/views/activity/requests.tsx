import { ask, json } from "../../api.ts";
import { Button } from "../../components/button.tsx";
import { Notice } from "../../components/notice.tsx";
import { Table } from "../../components/table.tsx";
import { toast, toastError } from "../../components/toast.tsx";
import { duration } from "../../format.ts";
import { usePolled } from "../../poll.ts";
import { texts } from "../../texts.en.ts";

const words = texts.activity;
const EVERY_MS = 1000;
// What this page itself asks for again and again.
const OWN = new Set(["/api/ps", "/api/version", "/api/tags", "/api/plan", "/api/pulls", "/api/du"]);

interface InFlight {
  number: number;
  method: string;
  path: string;
  model: string | null;
  client: string;
  address: string;
  age_s: number;
}

export function Requests() {
  const found = usePolled(() => json<{ requests: InFlight[] }>("api/requests"), EVERY_MS);
  const cancel = async (number: number) => {
    try {
      await ask(`api/requests/${number}`, { method: "DELETE" });
      toast(words.cancelled);
    } catch (error) {
      toastError(error);
    }
    found.again();
  };
  const { request } = words;
  const shown = found.value?.requests.filter((each) => !OWN.has(each.path)) ?? [];
  return (
    <section>
      <h2>{words.requests}</h2>
      {found.error && <Notice error={found.error} onRetry={found.again} />}
      {found.value && shown.length === 0 && (
        <p class="quiet" data-testid="no-requests">
          {words.noRequests}
        </p>
      )}
      {shown.length > 0 && (
        <Table caption={words.requests} columns={[{ title: request.path }, { title: request.model }, { title: request.client }, { title: request.age, number: true }, { title: request.action }]} testid="requests">
          {shown.map(({ number, method, path, model, client, address, age_s }) => (
            <tr key={number} data-testid="request">
              <td>
                {method} {path}
              </td>
              <td>{model ?? ""}</td>
              <td>
                {client || words.own} <small>{address}</small>
              </td>
              <td class="number">{duration(age_s)}</td>
              <td>
                <Button kind="danger" aria-label={words.cancelOf(number)} onClick={() => cancel(number)} testid="request-cancel">
                  {words.cancel}
                </Button>
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}
