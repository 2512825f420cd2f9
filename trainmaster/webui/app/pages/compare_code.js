/** How the code of two compared experiments differs, file by file. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { modelFile, modelFiles } from "../api/model_files.js";
import { difference } from "../lib/diff.js";
import { bytes, plural, visible } from "../lib/format.js";
import { place, setQuery } from "../ui/router.js";
import { Waiting } from "../ui/shell.js";
import { Difference } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { CompareView } from "./compare.js" */

const { button, div, label, li, option, p, select, span, ul } = tags;

const LARGEST = 1_000_000; // bytes
const MOST_READ = 200; // files whose content is compared
const AT_ONCE = 6; // calls

/** @typedef {{ path: string, how: "changed" | "only before" | "only after" | "not compared", size: number }} FileChange */

export const CompareCode = component((/** @type {{ view: CompareView }} */ { view }) => {
    const experiments = [...new Set(view.answer.things.map(one => one.experiment))];
    const [first = 0, second = 0] = experiments;
    const chosen = (place.value.query.get("code") ?? "").split("..").map(Number);
    const open = chosen.length === 2 && chosen.every(one => experiments.includes(one));
    if (experiments.length < 2) return p({ class: "muted" }, `All ran the code of experiment ${first}.`);
    if (!open) {
        return button(
            { type: "button", onClick: () => setQuery({ code: `${first}..${second}` }) },
            `Differences between experiments ${first} and ${second}`,
        );
    }
    const [from = 0, to = 0] = chosen;
    const Choice = (
        /** @type {string} */ words,
        /** @type {number} */ value,
        /** @type {(id: string) => string} */ next,
    ) =>
        label(
            { class: "chart-tool" },
            words,
            select(
                {
                    value: String(value),
                    onChange: event => setQuery({ code: next(event.currentTarget.value), file: null }),
                },
                experiments.map(id => option({ key: id, value: String(id) }, `experiment ${id}`)),
            ),
        );
    return div(
        null,
        div(
            { class: "section-head" },
            Choice("From", from, id => `${id}..${to}`),
            Choice("to", to, id => `${from}..${id}`),
            button({ type: "button", class: "plain", onClick: () => setQuery({ code: null, file: null }) }, "Close"),
        ),
        Changes({ key: `${from}..${to}`, from, to }),
    );
});

const Changes = component((/** @type {{ from: number, to: number }} */ { from, to }) => {
    const found = useSignal(/** @type {FileChange[] | null} */ (null));
    const said = useSignal("");
    useEffect(() => {
        changes(from, to).then(
            list => {
                found.value = list;
            },
            error => {
                said.value = error.message;
            },
        );
    }, []);
    if (said.value) return p({ role: "alert" }, visible(said.value, 500));
    const list = found.value;
    if (!list) return Waiting({});
    if (list.length === 0) return p({ class: "muted" }, "Their code is the same.");
    const file = list.find(one => one.path === place.value.query.get("file")) ?? list[0];
    return div(
        { class: "code-page" },
        div(
            { class: "code-files" },
            p({ class: "muted" }, plural(list.length, "file differs", "files differ")),
            ul(
                { "aria-label": "Files that differ" },
                list.map(one =>
                    li(
                        { key: one.path },
                        button(
                            {
                                type: "button",
                                class: "plain",
                                "aria-current": one === file ? "true" : undefined,
                                onClick: () => setQuery({ file: one.path }),
                            },
                            visible(one.path, 200),
                        ),
                        span({ class: "muted number" }, one.how),
                    ),
                ),
            ),
        ),
        div({ class: "source-page" }, file ? OneFile({ key: file.path, from, to, file }) : null),
    );
});

const OneFile = component((/** @type {{ from: number, to: number, file: FileChange }} */ { from, to, file }) => {
    const texts = useSignal(/** @type {[string, string] | null} */ (null));
    const said = useSignal("");
    const large = file.size > LARGEST;
    useEffect(() => {
        if (large) return;
        Promise.all([
            file.how === "only after" ? "" : modelFile(from, file.path),
            file.how === "only before" ? "" : modelFile(to, file.path),
        ]).then(
            found => {
                texts.value = found;
            },
            error => {
                said.value = error.message;
            },
        );
    }, []);
    if (large) return p({ class: "muted" }, `It has ${bytes(file.size)}: too much to compare here.`);
    if (said.value) return p({ role: "alert" }, visible(said.value, 500));
    if (!texts.value) return Waiting({});
    const [before, after] = texts.value;
    if (before.includes("\0") || after.includes("\0")) return p({ class: "muted" }, "It is no text.");
    return Difference({ lines: difference(before, after), same: "It is the same in both." });
});

/**
 * Files that are not the same in both experiments. Where sizes are equal the contents are read.
 * @param {number} from
 * @param {number} to
 * @returns {Promise<FileChange[]>}
 */
async function changes(from, to) {
    const [before, after] = await Promise.all([modelFiles(from), modelFiles(to)]);
    const theirs = new Map(after.map(one => [one.path, one]));
    /** @type {FileChange[]} */
    const found = [];
    /** @type {FileChange[]} */
    const alike = [];
    for (const one of before) {
        const other = theirs.get(one.path);
        theirs.delete(one.path);
        const size = Math.max(one.contentLength, other?.contentLength ?? 0);
        if (!other) found.push({ path: one.path, how: "only before", size });
        else if (other.contentLength !== one.contentLength) found.push({ path: one.path, how: "changed", size });
        else alike.push({ path: one.path, how: "changed", size });
    }
    for (const one of theirs.values()) found.push({ path: one.path, how: "only after", size: one.contentLength });
    const read = alike.filter(one => one.size <= LARGEST).slice(0, MOST_READ);
    for (let at = 0; at < read.length; at += AT_ONCE) {
        const some = read.slice(at, at + AT_ONCE);
        const differ = await Promise.all(
            some.map(async one => (await modelFile(from, one.path)) !== (await modelFile(to, one.path))),
        );
        found.push(...some.filter((_, place) => differ[place]));
    }
    for (const one of alike) if (!read.includes(one)) found.push({ ...one, how: "not compared" });
    return found.sort((one, other) => one.path.localeCompare(other.path));
}
