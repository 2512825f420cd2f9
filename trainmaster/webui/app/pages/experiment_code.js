/** The files that an experiment's trials run: their tree, one of them, and what differs from the parent's. */
import { useEffect } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { binary, modelFile, modelFiles } from "../api/model_files.js";
import { difference } from "../lib/diff.js";
import { bytes, plural, visible } from "../lib/format.js";
import { toastError } from "../ui/overlay.js";
import { href, place, setQuery } from "../ui/router.js";
import { save } from "../ui/save.js";
import { Waiting } from "../ui/shell.js";
import { Difference, SourceText } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */
/** @import { ModelFile } from "../api/model_files.js" */

const { a, button, div, li, p, span, ul } = tags;

const LARGEST_SHOWN = 1_000_000; // bytes
const MOST_FILES = 2000;

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id, parent } = view.board.experiment;
    const files = useSignal(/** @type {ModelFile[] | null} */ (null));
    const said = useSignal("");
    useEffect(() => {
        modelFiles(id).then(
            found => {
                files.value = found;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [id]);
    if (said.value) return div({ class: "empty", role: "alert" }, p(null, said.value));
    const all = files.value;
    if (!all) return Waiting({});
    if (all.length === 0) {
        return div({ class: "empty" }, p(null, "No files came with this experiment: its command is all there is."));
    }
    const chosen = all.find(one => one.path === place.value.query.get("file")) ?? preferred(all);
    const versus = parent !== null && place.value.query.get("as") === "parent";
    return div(
        { class: "code-page" },
        div(
            { class: "code-files" },
            div(
                { class: "section-head" },
                span({ class: "muted" }, plural(all.length, "file")),
                span({ class: "gap" }),
                button({ type: "button", onClick: () => download(id).catch(toastError) }, "Download all"),
            ),
            ul(
                { "aria-label": "Files" },
                all.slice(0, MOST_FILES).map(one =>
                    li(
                        { key: one.path },
                        a(
                            {
                                href: href(place.value.path, {
                                    ...Object.fromEntries(place.value.query),
                                    file: one.path,
                                }),
                                title: visible(one.path),
                                "aria-current": one === chosen ? "true" : undefined,
                            },
                            visible(one.path, 200),
                        ),
                        span({ class: "muted number" }, bytes(one.contentLength)),
                    ),
                ),
            ),
            all.length > MOST_FILES
                ? p({ class: "muted" }, `${all.length - MOST_FILES} more are in the download.`)
                : null,
        ),
        div(
            { class: "source-page" },
            div(
                { class: "section-head" },
                span({ class: "file-name" }, visible(chosen?.path ?? "", 200)),
                parent === null
                    ? null
                    : button(
                          {
                              type: "button",
                              class: "switch",
                              "aria-pressed": versus,
                              onClick: () => setQuery({ as: versus ? null : "parent" }),
                          },
                          `Changes to experiment ${parent}`,
                      ),
            ),
            chosen
                ? OneFile({ key: `${chosen.path} ${versus}`, id, parent: versus ? parent : null, file: chosen })
                : null,
        ),
    );
});

const OneFile = component(
    (/** @type {{ id: number, parent: number | null, file: ModelFile }} */ { id, parent, file }) => {
        const text = useSignal(/** @type {string | null} */ (null));
        const before = useSignal("");
        const said = useSignal("");
        const large = file.contentLength > LARGEST_SHOWN;
        useEffect(() => {
            if (large) return;
            const both = [
                modelFile(id, file.path),
                parent === null ? "" : modelFile(parent, file.path).catch(() => ""),
            ];
            Promise.all(both).then(
                ([mine = "", theirs = ""]) => {
                    before.value = theirs;
                    text.value = mine;
                },
                error => {
                    said.value = error.message;
                },
            );
        }, []);
        if (large)
            return p({ class: "muted" }, `It has ${bytes(file.contentLength)}: too much to show. The download has it.`);
        if (said.value) return p({ role: "alert" }, said.value);
        if (text.value === null) return Waiting({});
        if (text.value.includes("\0")) return p({ class: "muted" }, "It is no text. The download has it.");
        if (parent !== null) {
            const lines = difference(before.value, text.value);
            return Difference({ lines, same: `It is the same in experiment ${parent}.` });
        }
        return SourceText({ text: text.value, label: file.path });
    },
);

/** The file that most likely is the training. @param {ModelFile[]} files */
function preferred(files) {
    const python = files.filter(one => one.path.endsWith(".py"));
    const named = (/** @type {ModelFile} */ one) => /train|main|model_def/.test(one.path.split("/").at(-1) ?? "");
    return python.find(named) ?? python[0] ?? files[0];
}

/** @param {number} id */
async function download(id) {
    const { b64Tgz } = await get(`api/v1/experiments/${id}/model_def`);
    save(`experiment-${id}.tar.gz`, binary(b64Tgz), "application/gzip");
}
