/** The log of a trial, of the last of its tasks at first. */

import { hasEnded } from "../lib/states.js";
import { LogView } from "../ui/log_view.js";
import { location, setQuery } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */

const { div, label, option, select } = tags;

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    // A trial that was continued has one more task each time; attempts are called TASK.NUMBER.
    const tasks = [...new Set([...attempts.map(attempt => attempt.id.replace(/\.[^.]*$/, "")), trial.taskId])];
    const requested = location.value.query.get("task");
    const task = requested && tasks.includes(requested) ? requested : trial.taskId;
    const log = LogView({
        key: task,
        task,
        live: task === trial.taskId && !hasEnded(trial.state),
        command: `det trial logs ${trial.id}`,
    });
    if (tasks.length === 1) return log;
    return div(
        { class: "log-with-tasks" },
        label(
            { class: "chart-tool" },
            "Log of",
            select(
                {
                    value: task,
                    onChange: event => setQuery({ task: event.currentTarget.value, line: null, top: null, job: null }),
                },
                tasks.map((id, at) =>
                    option({ key: id, value: id }, at === tasks.length - 1 ? "this run" : `run ${at + 1}`),
                ),
            ),
        ),
        log,
    );
});
