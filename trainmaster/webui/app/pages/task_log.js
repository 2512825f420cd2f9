/** The log of a task that belongs to no experiment: a notebook, a shell, a command. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { shellWord } from "../lib/files.js";
import { visible } from "../lib/format.js";
import { toastError } from "../ui/overlay.js";
import { dataAddress, place } from "../ui/router.js";
import { usePlace, Waiting } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

const { div, h1, p, span } = tags;

/** @typedef {{ taskId: string, taskType: string, endTime?: string, config?: string }} Task as `GET tasks/ID` has it */

export const Page = component(() => {
    const { id = "" } = place.value.names;
    const found = useSignal(/** @type {Task | null} */ (null));
    const said = useSignal("");
    const loaded = useSignal(/** @type {{ LogView: typeof import("../ui/log_view.js").LogView } | null} */ (null));
    usePlace([
        { text: "Tasks", to: "" },
        { text: `log of ${id}`, to: `tasks/${id}/log` },
    ]);
    const address = dataAddress.value;
    useEffect(() => {
        import("../ui/log_view.js").then(module => {
            loaded.value = module;
        }, toastError);
    }, []);
    useEffect(() => {
        get(address).then(
            answer => {
                found.value = answer.task;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [address]);
    const task = found.value;
    if (!task) {
        if (!said.value) return Waiting({});
        return div({ class: "page", role: "alert" }, h1(null, "Not shown"), p(null, visible(said.value, 1000)));
    }
    const kind = task.taskType.replace("TASK_TYPE_", "").toLowerCase().replaceAll("_", " ");
    return div(
        { class: "thing-page" },
        div(
            { class: "thing-head" },
            div(
                { class: "thing-title" },
                h1(null, `Log of ${kind} `, visible(nameOf(task), 80)),
                span({ class: "muted" }, visible(id, 60)),
                task.endTime ? span({ class: "muted" }, "has ended") : null,
            ),
        ),
        div(
            { class: "tab" },
            loaded.value
                ? loaded.value.LogView({ task: id, live: !task.endTime, command: `det task logs ${shellWord(id)}` })
                : Waiting({}),
        ),
    );
});

/** @param {Task} task */
function nameOf(task) {
    try {
        return String(JSON.parse(task.config ?? "{}").description ?? "");
    } catch {
        return "";
    }
}
