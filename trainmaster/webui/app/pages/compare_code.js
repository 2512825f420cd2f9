/** How the code of two compared experiments differs, file by file. */

import { modelFile, modelFiles } from "../api/model_files.js";
import { difference } from "../lib/diff.js";
import { bytes, plural, visible } from "../lib/format.js";
import { PartError, useLoad } from "../ui/query.js";
import { location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { Difference } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { CompareView } from "./compare.js" */

const { button, div, label, li, option, p, select, span, ul } = tags;

const MAX_FILE_SIZE = 1_000_000; // bytes
const MAX_FILES_READ = 200; // files whose content is compared
const CONCURRENCY = 6; // calls

/** @typedef {{ path: string, status: "changed" | "only before" | "only after" | "not compared", size: number }} FileChange */

export const CompareCode = component((/** @type {{ view: CompareView }} */ { view }) => {
    const experiments = [...new Set(view.answer.things.map(item => item.experiment))];
    const [first = 0, second = 0] = experiments;
    const chosen = (location.value.query.get("code") ?? "").split("..").map(Number);
    const open = chosen.length === 2 && chosen.every(id => experiments.includes(id));
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
        ChangedFiles({ key: `${from}..${to}`, from, to }),
    );
});

const ChangedFiles = component((/** @type {{ from: number, to: number }} */ { from, to }) => {
    const { data: list, error } = useLoad("", () => changedFiles(from, to));
    if (error) return PartError({ error });
    if (!list) return LoadingBar({});
    if (list.length === 0) return p({ class: "muted" }, "The code is identical.");
    const file = list.find(change => change.path === location.value.query.get("file")) ?? list[0];
    return div(
        { class: "file-browser" },
        div(
            { class: "file-list" },
            p({ class: "muted" }, plural(list.length, "file differs", "files differ")),
            ul(
                { "aria-label": "Files that differ" },
                list.map(change =>
                    li(
                        { key: change.path },
                        button(
                            {
                                type: "button",
                                class: "plain",
                                "aria-current": change === file ? "true" : undefined,
                                onClick: () => setQuery({ file: change.path }),
                            },
                            visible(change.path, 200),
                        ),
                        span({ class: "muted number" }, change.status),
                    ),
                ),
            ),
        ),
        div({ class: "source-view" }, file ? FileDifference({ key: file.path, from, to, file }) : null),
    );
});

const FileDifference = component((/** @type {{ from: number, to: number, file: FileChange }} */ { from, to, file }) => {
    const large = file.size > MAX_FILE_SIZE;
    const { data: texts, error } = useLoad(
        "",
        large
            ? null
            : () =>
                  Promise.all([
                      file.status === "only after" ? "" : modelFile(from, file.path),
                      file.status === "only before" ? "" : modelFile(to, file.path),
                  ]),
    );
    if (large) return p({ class: "muted" }, `Too large to compare here: ${bytes(file.size)}.`);
    if (error) return PartError({ error });
    if (!texts) return LoadingBar({});
    const [before, after] = texts;
    if (before.includes("\0") || after.includes("\0")) return p({ class: "muted" }, "A binary file.");
    return Difference({ lines: difference(before, after), same: "Identical in both." });
});

/**
 * Files that are not the same in both experiments. Where sizes are equal the contents are read.
 * @param {number} from
 * @param {number} to
 * @returns {Promise<FileChange[]>}
 */
async function changedFiles(from, to) {
    const [before, after] = await Promise.all([modelFiles(from), modelFiles(to)]);
    const remaining = new Map(after.map(file => [file.path, file]));
    /** @type {FileChange[]} */
    const result = [];
    /** @type {FileChange[]} */
    const alike = [];
    for (const file of before) {
        const other = remaining.get(file.path);
        remaining.delete(file.path);
        const size = Math.max(file.contentLength, other?.contentLength ?? 0);
        if (!other) result.push({ path: file.path, status: "only before", size });
        else if (other.contentLength !== file.contentLength) result.push({ path: file.path, status: "changed", size });
        else alike.push({ path: file.path, status: "changed", size });
    }
    for (const file of remaining.values())
        result.push({ path: file.path, status: "only after", size: file.contentLength });
    const compared = alike.filter(change => change.size <= MAX_FILE_SIZE).slice(0, MAX_FILES_READ);
    for (let at = 0; at < compared.length; at += CONCURRENCY) {
        const some = compared.slice(at, at + CONCURRENCY);
        const differ = await Promise.all(
            some.map(async change => (await modelFile(from, change.path)) !== (await modelFile(to, change.path))),
        );
        result.push(...some.filter((_, index) => differ[index]));
    }
    for (const change of alike) if (!compared.includes(change)) result.push({ ...change, status: "not compared" });
    return result.sort((a, b) => a.path.localeCompare(b.path));
}
