/** Why everything happened to a trial: decisions of the search, of people, and what became of its jobs. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { href } from "../ui/router.js";
import { Waiting } from "../ui/shell.js";
import { StoryList } from "../ui/story_list.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { StoryAnswer, StoryEvent } from "../../types/api.d.ts" */

const { div, p } = tags;

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const events = useSignal(/** @type {StoryEvent[] | null} */ (null));
    const said = useSignal("");
    useEffect(() => {
        get(`api/x1/experiments/${trial.experimentId}/story?trial=${trial.id}`).then(
            (/** @type {StoryAnswer} */ answer) => {
                events.value = answer.events.map(one => ({ ...one, trial: null }));
            },
            error => {
                said.value = error.message;
            },
        );
    }, [trial.id, trial.state, attempts.length]);
    if (said.value) return div({ class: "empty", role: "alert" }, p(null, visible(said.value, 500)));
    if (!events.value) return Waiting({});
    if (events.value.length === 0) return div({ class: "empty" }, p(null, "Nothing has happened to it yet."));
    const known = href(`experiments/${trial.experimentId}/rungs`, { trial: String(trial.id) });
    return StoryList({ events: events.value, race: () => known });
});
