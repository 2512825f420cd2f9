/** An experiment's configuration: as it was written, as it was understood, and what differs from its parent's. */

import { get } from "../api/http.js";
import { difference } from "../lib/diff.js";
import { shellWord } from "../lib/files.js";
import { yaml } from "../lib/yaml.js";
import { saveFile } from "../ui/download.js";
import { act } from "../ui/overlay.js";
import { PartError, useLoad } from "../ui/query.js";
import { href, location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { Difference, SourceText } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */

const { a, button, div, span } = tags;

const MODES = /** @type {const} */ ([
    ["written", "As written"],
    ["resolved", "Resolved"],
    ["parent", "Changes to parent"],
]);

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id, parent } = view.board.experiment;
    const mode = location.value.query.get("as") ?? "written";
    const { data: config, error } = useLoad(String(id), () => loadConfig(id));
    const compared = mode === "parent" ? parent : null;
    const base = useLoad(String(compared), compared === null ? null : () => loadConfig(compared));
    if (error || base.error) return PartError({ error: error || base.error });
    if (!config) return LoadingBar({});
    const text = mode === "written" ? config.written : config.resolved;
    const name = `experiment-${id}.yaml`;
    return div(
        { class: "source-view" },
        div(
            { class: "section-head" },
            span(
                { class: "switches", role: "group", "aria-label": "Configuration" },
                MODES.filter(([key]) => key !== "parent" || parent !== null).map(([key, words]) =>
                    button(
                        {
                            key,
                            type: "button",
                            class: "switch",
                            "aria-pressed": mode === key,
                            onClick: () => setQuery({ as: key === "written" ? null : key }),
                        },
                        words,
                    ),
                ),
            ),
            parent === null ? null : a({ href: href(`experiments/${parent}/config`) }, `of experiment ${parent}`),
            span({ class: "gap" }),
            button({ type: "button", onClick: () => copy(text) }, "Copy"),
            button({ type: "button", onClick: () => saveFile(name, text, "application/yaml") }, "Save"),
            button(
                {
                    type: "button",
                    title: "The command that runs this experiment again",
                    onClick: () => copy(`det experiment create ${shellWord(name)} . # saved from experiment ${id}`),
                },
                "Copy as det",
            ),
        ),
        mode === "parent"
            ? base.data === null
                ? LoadingBar({})
                : Difference({
                      lines: difference(base.data.resolved, config.resolved),
                      same: "Identical to the parent's configuration.",
                  })
            : SourceText({ text, label: `Configuration of experiment ${id}` }),
    );
});

/** @param {number} id */
async function loadConfig(id) {
    const { experiment } = await get(`api/v1/experiments/${id}`);
    return { written: String(experiment.originalConfig ?? ""), resolved: yaml(experiment.config) };
}

/** @param {string} text */
function copy(text) {
    return act(navigator.clipboard.writeText(text), "Copied");
}
