/** The log of a task that belongs to no experiment: a notebook, a shell, a command. */

import { shellWord } from "../lib/files.js";
import { visible } from "../lib/format.js";
import { LoadError, useModule, useQuery } from "../ui/query.js";
import { dataAddress, location } from "../ui/router.js";
import { LoadingBar, usePageTitle } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

const { div, h1, span } = tags;

/** @typedef {{ taskId: string, taskType: string, endTime?: string, config?: string }} Task as `GET tasks/ID` has it */

export const Page = component(() => {
    const { id = "" } = location.value.params;
    usePageTitle([
        { text: "Tasks", to: "" },
        { text: `log of ${id}`, to: `tasks/${id}/log` },
    ]);
    const log = useModule("log", () => import("../ui/log_view.js"));
    const { data, error, refetch } = useQuery(dataAddress.value);
    if (!data) return error ? LoadError({ error, retry: refetch }) : LoadingBar({});
    const { task } = /** @type {{ task: Task }} */ (data);
    const kind = task.taskType.replace("TASK_TYPE_", "").toLowerCase().replaceAll("_", " ");
    return div(
        { class: "detail-page" },
        div(
            { class: "detail-head" },
            div(
                { class: "detail-title" },
                h1(null, `Log of ${kind} `, visible(nameOf(task), 80)),
                span({ class: "muted" }, visible(id, 60)),
                task.endTime ? span({ class: "muted" }, "ended") : null,
            ),
        ),
        div(
            { class: "tab" },
            log
                ? log.LogView({ task: id, live: !task.endTime, command: `det task logs ${shellWord(id)}` })
                : LoadingBar({}),
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
