/** All experiments: one filter line, a table of any length, marks, and what can be done to the marked ones. */
import { useEffect, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { follow } from "../api/live.js";
import { WindowedRows } from "../api/rows.js";
import { may } from "../api/session.js";
import { ACTIONS } from "../lib/actions.js";
import { valuesOf, withValues } from "../lib/filter.js";
import { count, number, plural, visible } from "../lib/format.js";
import { stateLook } from "../lib/states.js";
import { Ago, Labels, Lasted, Progress, Shape, State, Value } from "../ui/cells.js";
import { FilterLine } from "../ui/filter_line.js";
import { Menu, toastError } from "../ui/overlay.js";
import { addressOfData, href, place, setQuery } from "../ui/router.js";
import { usePlace, Waiting } from "../ui/shell.js";
import { CompareLink, Table } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";

/** @import { Row } from "../api/rows.js" */
/** @import { Column } from "../ui/table.js" */
/** @import { Signal } from "../../vendor/signals/signals.js" */

const { a, button, code, div, h1, p, pre, span } = tags;

export const USUAL_COLUMNS = [
    "name",
    "state",
    "progress",
    "trials",
    "metric",
    "best",
    "user",
    "started",
    "duration",
    "labels",
];

/** @type {Record<string, Omit<Column<Row>, "key">>} */
export const KNOWN_COLUMNS = {
    name: {
        title: "Experiment",
        width: 260,
        cell: row => [
            a(
                { href: href(`experiments/${row.id}`), title: visible(String(row["name"])), tabIndex: -1 },
                span({ class: "muted id" }, String(row.id)),
                visible(String(row["name"]), 120),
            ),
        ],
    },
    state: { title: "State", width: 110, unsorted: true, cell: row => State({ state: row["state"] }) },
    progress: { title: "Progress", width: 120, falling: true, cell: row => Progress({ share: row["progress"] }) },
    trials: { title: "Trials", width: 80, align: "right", falling: true, cell: row => count(row["trials"]) },
    metric: { title: "Metric", width: 130, cell: row => plain(row["metric"]) },
    best: { title: "Best", width: 90, align: "right", cell: row => Value({ value: row["best"] }) },
    user: { title: "Owner", width: 110, cell: row => plain(row["user"]) },
    started: {
        title: "Started",
        width: 100,
        align: "right",
        falling: true,
        cell: row => Ago({ seconds: row["started"] }),
    },
    ended: { title: "Ended", width: 100, align: "right", falling: true, cell: row => Ago({ seconds: row["ended"] }) },
    duration: {
        title: "Duration",
        width: 100,
        align: "right",
        falling: true,
        cell: row => Lasted({ seconds: row["duration"] }),
    },
    labels: { title: "Labels", width: 160, unsorted: true, cell: row => Labels({ labels: row["labels"] ?? [] }) },
    pool: { title: "Pool", width: 110, cell: row => plain(row["pool"]) },
    searcher: { title: "Search", width: 110, cell: row => plain(row["searcher"]) },
    project: { title: "Project", width: 130, cell: row => plain(row["project"]) },
    workspace: { title: "Workspace", width: 130, cell: row => plain(row["workspace"]) },
    description: { title: "Description", width: 200, cell: row => plain(row["description"]) },
    reason: { title: "Why", width: 240, cell: row => plain(row["reason"]) },
    checkpoints: {
        title: "Checkpoints",
        width: 100,
        align: "right",
        falling: true,
        cell: row => count(row["checkpoints"]),
    },
    size: { title: "Size", width: 100, align: "right", falling: true, cell: row => Value({ value: row["size"] }) },
    parent: {
        title: "Forked from",
        width: 90,
        align: "right",
        cell: row =>
            row["parent"]
                ? a({ href: href(`experiments/${row["parent"]}`), tabIndex: -1 }, String(row["parent"]))
                : "–",
    },
};

/** @param {unknown} value */
function plain(value) {
    const text = visible(String(value ?? ""));
    return span({ title: text }, text);
}

/**
 * @param {string} key
 * @returns {Column<Row>}
 */
function columnOf(key) {
    const known = KNOWN_COLUMNS[key];
    if (known) return { key, ...known };
    // A hyperparameter or a metric.
    return {
        key,
        title: visible(key.replace(/^hp\./, ""), 40),
        width: 100,
        align: "right",
        cell: row => Value({ value: row[key] }),
    };
}

export const Page = component(() => {
    usePlace([{ text: "Experiments", to: "experiments" }]);
    const at = place.value;
    const filter = at.query.get("filter") ?? "";
    const sort = at.query.get("sort") ?? "";
    const chosen = at.query.get("columns") ?? "";
    const marks = useSignal(/** @type {Map<string | number, Row>} */ (new Map()));
    const first = useSignal(0);
    const round = useSignal(0); // counts wishes for the present rows
    const names = chosen ? chosen.split(",") : USUAL_COLUMNS;
    const columns = useMemo(() => names.map(columnOf), [chosen]);
    const question = addressOfData(at);
    const rows = useMemo(() => {
        const made = new WindowedRows((offset, limit) =>
            addressOfData(at, offset ? { limit: String(limit), offset: String(offset) } : { limit: String(limit) }),
        );
        void made.read(0);
        return made;
    }, [question, round.value]);
    // The rows before stay until the new ones are there: nothing flickers while somebody types.
    const shown = useRef(rows);
    if (rows.loaded.value || !shown.current.loaded.value) shown.current = rows;
    useRefreshing(rows, first);

    /** @param {string} line @param {{ replace: boolean }} how */
    const setFilter = (line, how) => setQuery({ filter: line || null }, how);
    const all = shown.current;
    const failed = rows.failed.value;
    return div(
        { class: "list-page" },
        h1({ class: "unseen" }, "Experiments"),
        div(
            { class: "list-head" },
            FilterLine(
                {
                    line: filter,
                    onChange: setFilter,
                    label: "Filter experiments",
                    placeholder: "Filter: words, state:running, user:me, val_loss<0.3, hp.lr>1e-4, started<7d   ( / )",
                    said: rows.refused.value ? failed : "",
                    hides: ({ key, values }) => key === "state" || (key === "user" && values.join() === "me"),
                },
                StateSwitches({ rows: all, filter, setFilter }),
            ),
            div(
                { class: "list-tools" },
                Menu({
                    label: "More ways to filter",
                    text: "?",
                    class: "plain",
                    items: () => helpItems(filter, setFilter),
                }),
                button({ type: "button", onClick: () => lazily(tools => tools.chooseView()) }, "Views"),
                button({ type: "button", onClick: () => lazily(tools => tools.chooseColumns(names)) }, "Columns"),
                Menu({ label: "Export", text: "Export", items: () => exportItems(all, names, filter, sort) }),
            ),
        ),
        !all.loaded.value && !failed ? Waiting({}) : null,
        all.loaded.value && all.total.value === 0
            ? Empty({ filtered: filter !== "", clear: () => setFilter("", { replace: false }) })
            : Table({
                  label: "Experiments",
                  columns,
                  rows: all,
                  rowKey: (/** @type {Row} */ row) => row.id,
                  address: (/** @type {Row} */ row) => href(`experiments/${row.id}`),
                  marks,
                  sort,
                  onSort: next => setQuery({ sort: next || null }),
                  first,
              }),
        Foot({
            rows: all,
            marks,
            renew: () => {
                round.value += 1;
            },
        }),
    );
});

/**
 * @param {WindowedRows} rows
 * @param {Signal<number>} first
 */
function useRefreshing(rows, first) {
    useEffect(() => follow("list", () => rows.refresh(first.peek())), [rows]);
}

/** @param {(tools: typeof import("./experiments_tools.js")) => unknown} use loads what is seldom needed */
function lazily(use) {
    import("./experiments_tools.js").then(use).catch(toastError);
}

const StateSwitches = component(
    (
        /** @type {{ rows: WindowedRows, filter: string, setFilter: (line: string, how: { replace: boolean }) => void }} */ {
            rows,
            filter,
            setFilter,
        },
    ) => {
        const on = new Set(valuesOf(filter, "state").map(word => word.toUpperCase()));
        const states = rows.states.value;
        const found = [
            ...new Set(["RUNNING", "QUEUED", "PAUSED", "ERROR", "COMPLETED", ...Object.keys(states), ...on]),
        ];
        const mine = valuesOf(filter, "user").includes("me");
        return span(
            { class: "switches" },
            found.map(state => {
                const { word, look } = stateLook(state);
                const pressed = on.has(state);
                const next = pressed ? [...on].filter(one => one !== state) : [...on, state];
                return button(
                    {
                        key: state,
                        type: "button",
                        class: "switch",
                        "aria-pressed": pressed,
                        onClick: () =>
                            setFilter(
                                withValues(
                                    filter,
                                    "state",
                                    next.map(one => one.toLowerCase()),
                                ),
                                { replace: false },
                            ),
                    },
                    Shape({ look }),
                    `${word} `,
                    span({ class: "muted" }, count(states[state] ?? 0)),
                );
            }),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": mine,
                    onClick: () => setFilter(withValues(filter, "user", mine ? [] : ["me"]), { replace: false }),
                },
                "mine",
            ),
        );
    },
);

/**
 * @param {string} filter
 * @param {(line: string, how: { replace: boolean }) => void} setFilter
 */
function helpItems(filter, setFilter) {
    return [
        ["label:vit", "has the label"],
        ["-label:old", "has not"],
        ["user:me", "is mine"],
        ["started<7d", "began in the last seven days"],
        ["duration>2h", "took more than two hours"],
        ["trials>=100", "at least 100 trials"],
        ["best<0.3", "the best value of its metric"],
        ["hp.lr<1e-3", "a hyperparameter of the best trial"],
        ["pool:gpu,cpu", "in one of these pools"],
        ["archived:any", "archived ones too"],
    ].map(([text = "", hint]) => ({
        text,
        hint,
        action: () => setFilter(`${filter} ${text}`.trim(), { replace: false }),
    }));
}

/**
 * @param {WindowedRows} rows
 * @param {string[]} names
 * @param {string} filter
 * @param {string} sort
 */
function exportItems(rows, names, filter, sort) {
    const hint = plural(rows.total.value, "row");
    return [
        { text: "CSV", hint, action: () => lazily(tools => tools.saveRows(rows, names, "csv")) },
        { text: "JSON", hint, action: () => lazily(tools => tools.saveRows(rows, names, "json")) },
        { text: "Copy as det", hint: "command", action: () => lazily(tools => tools.copyCommand(names, filter, sort)) },
    ];
}

const Empty = component((/** @type {{ filtered: boolean, clear: () => void }} */ { filtered, clear }) =>
    filtered
        ? div(
              { class: "empty" },
              p(null, "No experiment fits this filter."),
              button({ type: "button", onClick: clear }, "Remove the filter"),
          )
        : div(
              { class: "empty" },
              p(null, "There are no experiments yet. A first one, from a folder with a configuration:"),
              pre(null, code(null, "det experiment create config.yaml . --follow-first-trial")),
          ),
);

const Foot = component(
    (
        /** @type {{ rows: WindowedRows, marks: Signal<Map<string | number, Row>>, renew: () => void }} */ {
            rows,
            marks,
            renew,
        },
    ) => {
        const marked = marks.value.size;
        return div(
            { class: "list-foot" },
            span(null, plural(rows.total.value, "experiment")),
            rows.outdated.value
                ? button({ type: "button", class: "plain news", onClick: renew }, "The list has changed: show it")
                : null,
            span({ class: "gap" }),
            marked ? span(null, `${number(marked)} marked`) : span({ class: "muted" }, "x marks the row"),
            CompareLink({ kind: "experiments", ids: [...marks.value.keys()].map(Number) }),
            button(
                {
                    type: "button",
                    disabled: rows.total.value === 0,
                    onClick: () => lazily(tools => tools.markAll(rows, marks)),
                },
                "Mark all",
            ),
            button(
                {
                    type: "button",
                    disabled: !marked,
                    onClick: () => {
                        marks.value = new Map();
                    },
                },
                "None",
            ),
            !ACTIONS.some(one => may(one.permission))
                ? null
                : Menu({
                      label: "Actions for the marked ones",
                      text: "Actions",
                      class: "primary",
                      disabled: !marked,
                      items: () => actionItems(marks, renew),
                  }),
        );
    },
);

/**
 * @param {Signal<Map<string | number, Row>>} marks
 * @param {() => void} renew
 */
function actionItems(marks, renew) {
    // What the user may do nowhere is not shown.
    return ACTIONS.filter(one => may(one.permission)).map(one => ({
        text: `${one.text} …`,
        dangerous: one.dangerous ?? false,
        action: () => lazily(tools => tools.act(one, marks, renew)),
    }));
}
