/** Why everything happened to an experiment: decisions of its search, of people, and what became of its jobs. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { href, location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { StoryList } from "../ui/story_list.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */
/** @import { StoryAnswer, StoryEvent } from "../../types/api.d.ts" */

const { button, div, input, label, p } = tags;

const PAGE_SIZE = 200; // events of a call
const SUBJECTS = /** @type {[string, string][]} */ ([
    ["", "all"],
    ["search", "search decisions"],
    ["trial", "trials and jobs"],
    ["experiment", "experiment"],
]);

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id } = view.board.experiment;
    const { query } = location.value;
    const trial = query.get("trial") ?? "";
    const subject = query.get("of") ?? "";
    const newest = query.get("order") === "newest";
    const events = useSignal(/** @type {StoryEvent[] | null} */ (null));
    const hasMore = useSignal(false);
    const error = useSignal("");
    const loadMore = (/** @type {StoryEvent[]} */ before) => {
        const words = new URLSearchParams({ limit: String(PAGE_SIZE) });
        words.set(newest ? "before" : "after", String(before.at(-1)?.id ?? 0));
        if (newest) words.set("newest", "true");
        if (subject) words.set("subject", subject);
        if (/^\d+$/.test(trial)) words.set("trial", trial);
        return get(`api/x1/experiments/${id}/story?${words}`).then(
            (/** @type {StoryAnswer} */ answer) => {
                events.value = [...before, ...answer.events];
                hasMore.value = answer.more;
                error.value = "";
            },
            failure => {
                error.value = failure.message;
            },
        );
    };
    useEffect(() => {
        void loadMore([]);
    }, [id, trial, subject, newest]);
    const loaded = events.value;
    if (!loaded)
        return error.value
            ? div({ class: "empty", role: "alert" }, p(null, visible(error.value, 500)))
            : LoadingBar({});
    return div(
        null,
        div(
            { class: "section-head" },
            SUBJECTS.map(([word, text]) =>
                button(
                    {
                        key: word,
                        type: "button",
                        class: "switch",
                        "aria-pressed": subject === word,
                        onClick: () => setQuery({ of: word || null }),
                    },
                    text,
                ),
            ),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": newest,
                    onClick: () => setQuery({ order: newest ? null : "newest" }),
                },
                "newest first",
            ),
            label(
                { class: "chart-tool" },
                "Only trial",
                input({
                    type: "search",
                    inputMode: "numeric",
                    value: trial,
                    onInput: event => setQuery({ trial: event.currentTarget.value.trim() || null }, { replace: true }),
                }),
            ),
        ),
        loaded.length
            ? StoryList({ events: loaded, race: view.board.brackets.length ? event => raceOf(id, event) : undefined })
            : p({ class: "muted" }, "No events yet."),
        error.value ? p({ class: "error-text", role: "alert" }, visible(error.value, 500)) : null,
        hasMore.value
            ? button({ type: "button", onClick: () => loadMore(loaded) }, newest ? "Older events" : "Newer events")
            : null,
    );
});

/** @param {number} id @param {import("../ui/story_list.js").TimelineEvent} event */
function raceOf(id, event) {
    return event.trial
        ? href(`experiments/${id}/rungs`, { trial: String(event.trial), decision: String(event.id) })
        : null;
}
