/** The files that an experiment's trials run: their tree, one of them, and what differs from the parent's. */

import { get } from "../api/http.js";
import { binary, modelFile, modelFiles } from "../api/model_files.js";
import { difference } from "../lib/diff.js";
import { bytes, plural, visible } from "../lib/format.js";
import { saveFile } from "../ui/download.js";
import { toastError } from "../ui/overlay.js";
import { PartError, useLoad } from "../ui/query.js";
import { href, location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { Difference, SourceText } from "../ui/source_text.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentView } from "./experiment.js" */
/** @import { GitAnswer } from "../../types/api.d.ts" */
/** @import { ModelFile } from "../api/model_files.js" */

const { a, button, code, div, li, p, span, ul } = tags;

const MAX_SHOWN_SIZE = 1_000_000; // bytes
const MAX_FILES = 2000;

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id } = view.board.experiment;
    const { data: all, error } = useLoad(String(id), () => modelFiles(id));
    if (error) return PartError({ error });
    if (!all) return LoadingBar({});
    if (all.length === 0) {
        return div({ class: "empty" }, p(null, "This experiment was created without files."));
    }
    return div(null, Commit({ id }), Files({ view, all }));
});

const Files = component((/** @type {{ view: ExperimentView, all: ModelFile[] }} */ { view, all }) => {
    const { id, parent } = view.board.experiment;
    const chosen = all.find(file => file.path === location.value.query.get("file")) ?? likelyTraining(all);
    const versus = parent !== null && location.value.query.get("as") === "parent";
    return div(
        { class: "file-browser" },
        div(
            { class: "file-list" },
            div(
                { class: "section-head" },
                span({ class: "muted" }, plural(all.length, "file")),
                span({ class: "gap" }),
                button({ type: "button", onClick: () => download(id).catch(toastError) }, "Download all"),
            ),
            ul(
                { "aria-label": "Files" },
                all.slice(0, MAX_FILES).map(file =>
                    li(
                        { key: file.path },
                        a(
                            {
                                href: href(location.value.path, {
                                    ...Object.fromEntries(location.value.query),
                                    file: file.path,
                                }),
                                title: visible(file.path),
                                "aria-current": file === chosen ? "true" : undefined,
                            },
                            visible(file.path, 200),
                        ),
                        span({ class: "muted number" }, bytes(file.contentLength)),
                    ),
                ),
            ),
            all.length > MAX_FILES ? p({ class: "muted" }, `${all.length - MAX_FILES} more in the download.`) : null,
        ),
        div(
            { class: "source-view" },
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
                ? FileView({ key: `${chosen.path} ${versus}`, id, parent: versus ? parent : null, file: chosen })
                : null,
        ),
    );
});

const FileView = component(
    (/** @type {{ id: number, parent: number | null, file: ModelFile }} */ { id, parent, file }) => {
        const large = file.contentLength > MAX_SHOWN_SIZE;
        const { data: texts, error } = useLoad(
            "",
            large
                ? null
                : () =>
                      Promise.all([
                          modelFile(id, file.path),
                          parent === null ? "" : modelFile(parent, file.path).catch(() => ""),
                      ]),
        );
        if (large)
            return p({ class: "muted" }, `Too large to show: ${bytes(file.contentLength)}. The download includes it.`);
        if (error) return PartError({ error });
        if (!texts) return LoadingBar({});
        const [text, before] = texts;
        if (text.includes("\0")) return p({ class: "muted" }, "A binary file. The download includes it.");
        if (parent !== null) {
            const lines = difference(before, text);
            return Difference({ lines, same: `Identical in experiment ${parent}.` });
        }
        return SourceText({ text, label: file.path });
    },
);

/** The commit that the files are of, and what was changed since. */
const Commit = component((/** @type {{ id: number }} */ { id }) => {
    const { data } = useLoad(String(id), () => /** @type {Promise<GitAnswer>} */ (get(`api/x1/experiments/${id}/git`)));
    const git = data?.git;
    if (!git) return null;
    const open = location.value.query.get("diff") !== null;
    return div(
        { class: "git-state" },
        p(
            null,
            "Commit ",
            code({ title: git.commit }, git.commit.slice(0, 12)),
            git.branch ? [" on ", code(null, visible(git.branch, 200))] : " (no branch)",
            git.remote ? [" of ", code(null, visible(git.remote, 200))] : null,
            git.committer ? `, by ${visible(git.committer, 100)}, ${git.committed.slice(0, 10)}` : null,
            git.untracked ? `; ${plural(git.untracked, "file")} in no commit` : null,
            ". ",
            git.diff
                ? button(
                      {
                          type: "button",
                          class: "switch",
                          "aria-pressed": open,
                          onClick: () => setQuery({ diff: open ? null : "1" }),
                      },
                      `Uncommitted changes: ${plural(git.changedLines, "line")}`,
                  )
                : "Nothing was changed since.",
        ),
        open && git.diff
            ? div(
                  null,
                  SourceText({ text: git.diff, label: "Uncommitted changes" }),
                  git.diffCut ? p({ class: "muted" }, "There was more: only the first 256 KiB are kept.") : null,
              )
            : null,
    );
});

/** The file that most likely is the training. @param {ModelFile[]} files */
function likelyTraining(files) {
    const python = files.filter(file => file.path.endsWith(".py"));
    const named = (/** @type {ModelFile} */ file) => /train|main|model_def/.test(file.path.split("/").at(-1) ?? "");
    return python.find(named) ?? python[0] ?? files[0];
}

/** @param {number} id */
async function download(id) {
    const { b64Tgz } = await get(`api/v1/experiments/${id}/model_def`);
    saveFile(`experiment-${id}.tar.gz`, binary(b64Tgz), "application/gzip");
}
