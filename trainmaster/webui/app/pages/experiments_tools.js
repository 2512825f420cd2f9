/** What the list of experiments seldom needs: views, columns, files, and actions on the marked ones. */
import { signal } from "../../vendor/signals/signals.js";
import { get, send } from "../api/http.js";
import { may } from "../api/session.js";
import { session } from "../api/state.js";
import { preview } from "../lib/actions.js";
import { csv, json, shellWord } from "../lib/files.js";
import { plural, visible } from "../lib/format.js";
import { saveFile } from "../ui/download.js";
import { copyText, openDialog, toast, toastError } from "../ui/overlay.js";
import { location, setQuery } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";
import { DEFAULT_COLUMNS, KNOWN_COLUMNS } from "./experiments_columns.js";

/** @import { Row, WindowedRows } from "../api/rows.js" */
/** @import { Action } from "../lib/actions.js" */
/** @import { Cell } from "../lib/files.js" */
/** @import { Signal } from "../../vendor/signals/signals.js" */

const { button, datalist, div, input, label, li, option, p, span, ul } = tags;

// -- files ------------------------------------------------------------------------------------------------------------

/**
 * Saves all rows, not only those in sight.
 * @param {WindowedRows} rows
 * @param {string[]} names
 * @param {"csv" | "json"} kind
 */
export async function saveRows(rows, names, kind) {
    const head = ["id", ...names];
    const cells = (await rows.fetchAll()).map(row => head.map(name => /** @type {Cell} */ (row[name])));
    saveFile(
        `experiments.${kind}`,
        kind === "csv" ? csv(head, cells) : json(head, cells),
        kind === "csv" ? "text/csv" : "application/json",
    );
}

/**
 * @param {string[]} names
 * @param {string} filter
 * @param {string} sort
 */
export async function copyCommand(names, filter, sort) {
    const words = ["det", "experiment", "find"];
    if (filter) words.push(...(filter.startsWith("-") ? ["--", filter] : [filter]));
    const options = [];
    if (sort) options.push(`--sort=${sort}`);
    if (names.join() !== DEFAULT_COLUMNS.join()) options.push("--columns", names.join(","));
    words.splice(3, 0, ...options);
    const command = words.map(shellWord).join(" ");
    await copyText(command);
}

// -- marks and actions ------------------------------------------------------------------------------------------------

/**
 * @param {WindowedRows} rows
 * @param {Signal<Map<string | number, Row>>} marks
 */
export async function markAll(rows, marks) {
    const all = await rows.fetchAll();
    marks.value = new Map(all.map(row => [row.id, row]));
}

/** @param {Row} row */
function subject(row) {
    const user = session.value?.user;
    return {
        id: row.id,
        state: String(row["state"]),
        archived: Boolean(row["archived"]),
        own: user?.admin || user?.id === row["userId"],
        workspace: Number(row["workspaceId"]),
    };
}

/**
 * Shows what an action would do, and does it when that is confirmed.
 * @param {Action} action
 * @param {Signal<Map<string | number, Row>>} marks
 * @param {() => void} renew
 */
export async function runAction(action, marks, renew) {
    // With roles the owner does not matter.
    const subjects = [...marks.value.values()].map(subject).map(experiment => ({
        ...experiment,
        editable: may(action.permission, experiment.workspace) && (experiment.own || session.value?.roles === true),
    }));
    const { ids, skipped } = preview(action, subjects);
    const body = () =>
        div(
            null,
            p(
                null,
                ids.length
                    ? `${action.text} ${plural(ids.length, "experiment")}${action.dangerous ? ". This cannot be undone." : "."}`
                    : "Nothing to do.",
            ),
            skipped.size
                ? div(
                      null,
                      p(null, "Skipped:"),
                      ul(
                          null,
                          [...skipped].map(([why, size]) =>
                              li(
                                  { key: why },
                                  `${size} ${size === 1 ? why.replace(/^are /, "is ").replace(/^have /, "has ") : why}`,
                              ),
                          ),
                      ),
                  )
                : null,
        );
    const answer = await openDialog({
        title: `${action.text}: ${plural(subjects.length, "marked experiment")}`,
        body,
        actions: ids.length
            ? [{ text: `${action.text} ${ids.length}`, answer: "yes", dangerous: action.dangerous ?? false }]
            : [],
    });
    if (answer !== "yes") return;
    const path = `api/v1/projects/-1/experiments/${action.name}`;
    try {
        /** @type {import("../../types/api.d.ts").ResultsAnswer} */
        const outcome = await send(action.method, path, { experimentIds: ids, projectId: -1 });
        const failed = outcome.results.filter(result => result.error);
        const worked = outcome.results.length - failed.length;
        toast(`${action.text}: done for ${plural(worked, "experiment")}.`);
        const first = failed[0];
        if (first)
            toast(`${plural(failed.length, "experiment")} failed. ${first.id}: ${first.error}`, { kind: "error" });
        const left = new Map(marks.value);
        for (const result of outcome.results) if (!result.error) left.delete(result.id);
        marks.value = left;
        renew();
    } catch (error) {
        toastError(error);
    }
}

// -- columns ----------------------------------------------------------------------------------------------------------

/** @param {string[]} now */
export async function chooseColumns(now) {
    const chosen = signal([...now]);
    const available = signal(Object.keys(KNOWN_COLUMNS));
    get("api/v1/projects/0/columns").then(
        (/** @type {{ columns: { column: string, location: string }[] }} */ answer) => {
            const measured = answer.columns.map(column => column.column).filter(name => name.includes("."));
            available.value = [...Object.keys(KNOWN_COLUMNS), ...measured];
        },
        () => undefined,
    );
    const answer = await openDialog({
        title: "Columns",
        body: () => ColumnChoice({ chosen, available }),
        actions: [
            { text: "Apply", answer: "yes" },
            { text: "Reset", answer: "usual" },
        ],
    });
    if (answer === "usual") setQuery({ columns: null });
    else if (answer === "yes")
        setQuery({ columns: chosen.value.join() === DEFAULT_COLUMNS.join() ? null : chosen.value.join(",") });
}

const ColumnChoice = component(
    (/** @type {{ chosen: Signal<string[]>, available: Signal<string[]> }} */ { chosen, available }) => {
        /** @param {number} at @param {number} to */
        const move = (at, to) => {
            const next = [...chosen.value];
            const [moved] = next.splice(at, 1);
            if (moved !== undefined) next.splice(to, 0, moved);
            chosen.value = next;
        };
        /** @param {string} name */
        const add = name => {
            const clean = name.trim().replaceAll(",", "");
            if (clean && !chosen.value.includes(clean)) chosen.value = [...chosen.value, clean];
        };
        return div(
            null,
            ul(
                { class: "choice" },
                chosen.value.map((name, at) => {
                    const title = visible(KNOWN_COLUMNS[name]?.title ?? name, 60);
                    return li(
                        { key: name },
                        span(null, title),
                        button(
                            {
                                type: "button",
                                class: "plain",
                                "aria-label": `${title}: to the left`,
                                disabled: at === 0,
                                onClick: () => move(at, at - 1),
                            },
                            "↑",
                        ),
                        button(
                            {
                                type: "button",
                                class: "plain",
                                "aria-label": `${title}: to the right`,
                                disabled: at === chosen.value.length - 1,
                                onClick: () => move(at, at + 1),
                            },
                            "↓",
                        ),
                        button(
                            {
                                type: "button",
                                class: "plain",
                                "aria-label": `${title}: remove`,
                                disabled: chosen.value.length === 1,
                                onClick: () => {
                                    chosen.value = chosen.value.filter(other => other !== name);
                                },
                            },
                            "✕",
                        ),
                    );
                }),
            ),
            label(
                null,
                "Add a column, a metric (val_loss) or a hyperparameter (hp.lr)",
                input({
                    type: "text",
                    list: "known-columns",
                    autocomplete: "off",
                    onKeyDown: event => {
                        if (event.key !== "Enter" || !event.currentTarget.value) return;
                        event.preventDefault();
                        add(event.currentTarget.value);
                        event.currentTarget.value = "";
                    },
                    onChange: event => {
                        if (!available.value.includes(event.currentTarget.value)) return;
                        add(event.currentTarget.value);
                        event.currentTarget.value = "";
                    },
                }),
            ),
            datalist(
                { id: "known-columns" },
                available.value
                    .filter(name => !chosen.value.includes(name))
                    .map(name => option({ key: name, value: name })),
            ),
        );
    },
);

// -- views ------------------------------------------------------------------------------------------------------------

const VIEWS_PATH = "trainmaster/experiments"; // where the user's settings keep them
/** @typedef {{ name: string, query: string }} View */

/** @returns {Promise<View[]>} */
async function loadViews() {
    /** @type {{ settings: { key: string, value: string, storagePath: string }[] }} */
    const answer = await get("api/v1/users/setting");
    const stored = answer.settings.find(setting => setting.storagePath === VIEWS_PATH && setting.key === "views");
    try {
        return stored ? JSON.parse(stored.value) : [];
    } catch {
        return [];
    }
}

/** @param {View[]} views */
function storeViews(views) {
    return send("POST", "api/v1/users/setting", {
        settings: [{ key: "views", storagePath: VIEWS_PATH, value: JSON.stringify(views) }],
    });
}

export async function chooseView() {
    const views = signal(await loadViews());
    /** @param {View} view */
    const show = view => {
        const query = new URLSearchParams(view.query);
        setQuery({ filter: query.get("filter"), sort: query.get("sort"), columns: query.get("columns") });
    };
    /** @param {View[]} next */
    const keep = async next => {
        try {
            await storeViews(next);
            views.value = next;
        } catch (error) {
            toastError(error);
        }
    };
    await openDialog({ title: "Views", body: close => ViewChoice({ views, keep, show, close }) });
}

const ViewChoice = component(
    (
        /** @type {{ views: Signal<View[]>, keep: (next: View[]) => Promise<void>, show: (view: View) => void, close: () => void }} */ {
            views,
            keep,
            show,
            close,
        },
    ) => {
        const query = location.value.query.toString();
        /** @param {HTMLInputElement} field */
        const add = field => {
            const name = field.value.trim();
            if (!name) return;
            field.value = "";
            void keep([...views.value.filter(view => view.name !== name), { name, query }]);
        };
        return div(
            null,
            views.value.length
                ? null
                : p({ class: "muted" }, "A view saves a filter, an order and columns under a name."),
            ul(
                { class: "choice" },
                views.value.map(view =>
                    li(
                        { key: view.name },
                        button(
                            {
                                type: "button",
                                class: "plain wide",
                                title: new URLSearchParams(view.query).get("filter") ?? "",
                                onClick: () => {
                                    close();
                                    show(view);
                                },
                            },
                            visible(view.name, 60),
                        ),
                        button(
                            {
                                type: "button",
                                class: "plain",
                                "aria-label": `Remove ${visible(view.name, 60)}`,
                                onClick: () => keep(views.value.filter(other => other !== view)),
                            },
                            "✕",
                        ),
                    ),
                ),
            ),
            label(
                null,
                "Save the current view as",
                input({
                    type: "text",
                    maxLength: 60,
                    onKeyDown: event => {
                        if (event.key !== "Enter") return;
                        event.preventDefault();
                        add(event.currentTarget);
                    },
                }),
            ),
        );
    },
);
