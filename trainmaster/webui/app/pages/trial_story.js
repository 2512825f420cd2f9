/** Why everything happened to a trial: decisions of the search, of people, and what became of its jobs. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { Ago } from "../ui/cells.js";
import { Waiting } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @typedef {{ time: string, subject: string, event: string, before: string, after: string, why: string, decisions: string[] }} Event */

const { div, li, ol, p, span } = tags;

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const events = useSignal(/** @type {Event[] | null} */ (null));
    const said = useSignal("");
    useEffect(() => {
        get(`api/x1/trials/${trial.id}/story`).then(
            answer => {
                events.value = answer.events;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [trial.id, trial.state, attempts.length]);
    if (said.value) return div({ class: "empty", role: "alert" }, p(null, visible(said.value, 500)));
    if (!events.value) return Waiting({});
    if (events.value.length === 0) return div({ class: "empty" }, p(null, "Nothing has happened to it yet."));
    return ol(
        { class: "story" },
        events.value.map((one, at) =>
            li(
                { key: at },
                span({ class: "story-when" }, Ago({ seconds: Date.parse(one.time) / 1000 })),
                div(
                    null,
                    span({ class: "story-what" }, wordsOf(one)),
                    one.why ? p(null, visible(one.why, 1000)) : null,
                    one.decisions.map((decision, place) =>
                        p({ key: place, class: "muted" }, `→ ${visible(decision, 1000)}`),
                    ),
                ),
            ),
        ),
    );
});

/** @param {Event} one */
function wordsOf(one) {
    const event = visible(one.event.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase(), 60);
    const change =
        one.before && one.before !== one.after ? `: ${one.before.toLowerCase()} → ${one.after.toLowerCase()}` : "";
    return `${visible(one.subject, 30)} ${event}${change.replaceAll("_", " ")}`;
}
