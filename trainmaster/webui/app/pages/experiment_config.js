/** An experiment's configuration: as it was written, as it was understood, and what differs from its parent's. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { difference } from "../lib/diff.js";
import { shellWord } from "../lib/files.js";
import { yaml } from "../lib/yaml.js";
import { toast, toastError } from "../ui/overlay.js";
import { href, place, setQuery } from "../ui/router.js";
import { save } from "../ui/save.js";
import { Waiting } from "../ui/shell.js";
import { Difference, SourceText } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */

const { a, button, div, p, span } = tags;

const WAYS = /** @type {const} */ ([
    ["written", "As written"],
    ["resolved", "As understood"],
    ["parent", "Changes to its parent"],
]);

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id, parent } = view.board.experiment;
    const way = place.value.query.get("as") ?? "written";
    const mine = useSignal(/** @type {{ written: string, resolved: string } | null} */ (null));
    const theirs = useSignal(/** @type {string | null} */ (null));
    const said = useSignal("");
    useEffect(() => {
        configuration(id).then(
            found => {
                mine.value = found;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [id]);
    useEffect(() => {
        if (way !== "parent" || parent === null) return;
        configuration(parent).then(
            found => {
                theirs.value = found.resolved;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [way, parent]);
    const found = mine.value;
    if (said.value) return div({ class: "empty", role: "alert" }, p(null, said.value));
    if (!found) return Waiting({});
    const text = way === "written" ? found.written : found.resolved;
    const name = `experiment-${id}.yaml`;
    return div(
        { class: "source-page" },
        div(
            { class: "section-head" },
            span(
                { class: "switches", role: "group", "aria-label": "Configuration" },
                WAYS.filter(([key]) => key !== "parent" || parent !== null).map(([key, words]) =>
                    button(
                        {
                            key,
                            type: "button",
                            class: "switch",
                            "aria-pressed": way === key,
                            onClick: () => setQuery({ as: key === "written" ? null : key }),
                        },
                        words,
                    ),
                ),
            ),
            parent === null ? null : a({ href: href(`experiments/${parent}/config`) }, `of experiment ${parent}`),
            span({ class: "gap" }),
            button({ type: "button", onClick: () => copy(text) }, "Copy"),
            button({ type: "button", onClick: () => save(name, text, "application/yaml") }, "Save"),
            button(
                {
                    type: "button",
                    title: "The command that starts the same again",
                    onClick: () => copy(`det experiment create ${shellWord(name)} . # saved from experiment ${id}`),
                },
                "Copy as det",
            ),
        ),
        way === "parent"
            ? theirs.value === null
                ? Waiting({})
                : Difference({
                      lines: difference(theirs.value, found.resolved),
                      same: "It has the same configuration as its parent.",
                  })
            : SourceText({ text, label: `Configuration of experiment ${id}` }),
    );
});

/** @param {number} id */
async function configuration(id) {
    const { experiment } = await get(`api/v1/experiments/${id}`);
    return { written: String(experiment.originalConfig ?? ""), resolved: yaml(experiment.config) };
}

/** @param {string} text */
function copy(text) {
    navigator.clipboard.writeText(text).then(() => toast("Copied"), toastError);
}
