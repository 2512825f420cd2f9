/** Why everything happened to a trial: decisions of the search, of people, and what became of its jobs. */

import { get } from "../api/http.js";
import { PartError, useLoad } from "../ui/query.js";
import { href } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { StoryList } from "../ui/story_list.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { StoryAnswer } from "../../types/api.d.ts" */

const { div, p } = tags;

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, attempts } = view.board;
    const key = `${trial.id} ${trial.state} ${attempts.length}`;
    const { data: events, error } = useLoad(key, () => loadEvents(trial));
    if (error) return PartError({ error });
    if (!events) return LoadingBar({});
    if (events.length === 0) return div({ class: "empty" }, p(null, "No events yet."));
    return StoryList({
        events: events,
        race: event =>
            href(`experiments/${trial.experimentId}/rungs`, { trial: String(trial.id), decision: String(event.id) }),
    });
});

/** @param {{ id: number, experimentId: number }} trial */
async function loadEvents({ id, experimentId }) {
    /** @type {StoryAnswer} */
    const { events } = await get(`api/x1/experiments/${experimentId}/story?trial=${id}`);
    return events.map(event => ({ ...event, trial: null }));
}
