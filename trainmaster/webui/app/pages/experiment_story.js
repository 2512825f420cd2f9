/** Why everything happened to an experiment: decisions of its search, of people, and what became of its jobs. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { visible } from "../lib/format.js";
import { href, place, setQuery } from "../ui/router.js";
import { Waiting } from "../ui/shell.js";
import { StoryList } from "../ui/story_list.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */
/** @import { StoryAnswer, StoryEvent } from "../../types/api.d.ts" */

const { button, div, input, label, p } = tags;

const PIECE = 200; // events of a call
const SUBJECTS = /** @type {[string, string][]} */ ([
    ["", "all"],
    ["search", "decisions of the search"],
    ["trial", "trials and their jobs"],
    ["experiment", "the experiment itself"],
]);

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id } = view.board.experiment;
    const { query } = place.value;
    const trial = query.get("trial") ?? "";
    const subject = query.get("of") ?? "";
    const newest = query.get("order") === "newest";
    const events = useSignal(/** @type {StoryEvent[] | null} */ (null));
    const more = useSignal(false);
    const said = useSignal("");
    const read = (/** @type {StoryEvent[]} */ before) => {
        const words = new URLSearchParams({ limit: String(PIECE) });
        words.set(newest ? "before" : "after", String(before.at(-1)?.id ?? 0));
        if (newest) words.set("newest", "true");
        if (subject) words.set("subject", subject);
        if (/^\d+$/.test(trial)) words.set("trial", trial);
        return get(`api/x1/experiments/${id}/story?${words}`).then(
            (/** @type {StoryAnswer} */ answer) => {
                events.value = [...before, ...answer.events];
                more.value = answer.more;
                said.value = "";
            },
            error => {
                said.value = error.message;
            },
        );
    };
    useEffect(() => {
        void read([]);
    }, [id, trial, subject, newest]);
    const found = events.value;
    if (!found)
        return said.value ? div({ class: "empty", role: "alert" }, p(null, visible(said.value, 500))) : Waiting({});
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
        found.length
            ? StoryList({ events: found, race: view.board.brackets.length ? one => raceOf(id, one) : undefined })
            : p({ class: "muted" }, "Nothing has happened yet."),
        said.value ? p({ class: "said", role: "alert" }, visible(said.value, 500)) : null,
        more.value
            ? button({ type: "button", onClick: () => read(found) }, newest ? "What came before" : "What came next")
            : null,
    );
});

/** @param {number} id @param {import("../ui/story_list.js").Happening} one */
function raceOf(id, one) {
    return one.trial ? href(`experiments/${id}/rungs`, { trial: String(one.trial) }) : null;
}
