/** One experiment. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { State } from "../ui/cells.js";
import { dataAddress, place } from "../ui/router.js";
import { usePlace, Waiting } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { Experiment } from "../../types/api.d.ts" */

const { div, h1, p } = tags;

export const Page = component(() => {
    const id = place.value.names["id"] ?? "";
    const found = useSignal(/** @type {Experiment | null} */ (null));
    const said = useSignal("");
    usePlace([
        { text: "Experiments", to: "experiments" },
        { text: found.value ? `${id} ${found.value.name}` : id, to: `experiments/${id}` },
    ]);
    useEffect(() => {
        get(dataAddress.value).then(
            (/** @type {{ experiment: Experiment }} */ answer) => {
                found.value = answer.experiment;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [id]);
    if (said.value) return div({ class: "page", role: "alert" }, h1(null, "Not shown"), p(null, said.value));
    const one = found.value;
    if (!one) return Waiting({});
    return div(
        { class: "page" },
        h1(null, visible(one.name)),
        p(null, State({ state: one.state }), " ", visible(one.stateReason, 1000)),
    );
});
