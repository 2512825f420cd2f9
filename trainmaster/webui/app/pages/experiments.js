/** All experiments: one filter line, a table of any length, marks, and the actions on the marked experiments. */
import { useEffect, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { subscribe } from "../api/live.js";
import { WindowedRows } from "../api/rows.js";
import { may } from "../api/session.js";
import { ACTIONS } from "../lib/actions.js";
import { valuesOf, withValues } from "../lib/filter.js";
import { count, number, plural } from "../lib/format.js";
import { stateLook } from "../lib/states.js";
import { StateIcon } from "../ui/cells.js";
import { FilterLine } from "../ui/filter_line.js";
import { Menu, toastError } from "../ui/overlay.js";
import { dataAddressOf, href, location, setQuery } from "../ui/router.js";
import { LoadingBar, usePageTitle } from "../ui/shell.js";
import { CompareLink, Table } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";
import { columnOf, DEFAULT_COLUMNS } from "./experiments_columns.js";

/** @import { Row } from "../api/rows.js" */
/** @import { Signal } from "../../vendor/signals/signals.js" */

const { button, code, div, h1, p, pre, span } = tags;

export const Page = component(() => {
    usePageTitle([{ text: "Experiments", to: "experiments" }]);
    const at = location.value;
    const filter = at.query.get("filter") ?? "";
    const sort = at.query.get("sort") ?? "";
    const chosen = at.query.get("columns") ?? "";
    const marks = useSignal(/** @type {Map<string | number, Row>} */ (new Map()));
    const first = useSignal(0);
    const generation = useSignal(0); // counts wishes for the present rows
    const names = chosen ? chosen.split(",") : DEFAULT_COLUMNS;
    const columns = useMemo(() => names.map(columnOf), [chosen]);
    const question = dataAddressOf(at);
    const rows = useMemo(() => {
        const made = new WindowedRows((offset, limit) =>
            dataAddressOf(at, offset ? { limit: String(limit), offset: String(offset) } : { limit: String(limit) }),
        );
        void made.load(0);
        return made;
    }, [question, generation.value]);
    // The rows before stay until the new ones are there: nothing flickers while somebody types.
    const displayed = useRef(rows);
    if (rows.loaded.value || !displayed.current.loaded.value) displayed.current = rows;
    useRefreshing(rows, first);

    /** @param {string} line @param {{ replace: boolean }} how */
    const setFilter = (line, how) => setQuery({ filter: line || null }, how);
    const all = displayed.current;
    const failed = rows.failed.value;
    return div(
        { class: "list-page" },
        h1({ class: "visually-hidden" }, "Experiments"),
        div(
            { class: "list-head" },
            FilterLine(
                {
                    line: filter,
                    onChange: setFilter,
                    label: "Filter experiments",
                    placeholder: "Filter: words, state:running, user:me, val_loss<0.3, hp.lr>1e-4, started<7d   ( / )",
                    error: rows.refused.value ? failed : "",
                    hidesChip: ({ key, values }) => key === "state" || (key === "user" && values.join() === "me"),
                },
                StateSwitches({ rows: all, filter, setFilter }),
            ),
            div(
                { class: "list-tools" },
                Menu({
                    label: "Filter examples",
                    text: "?",
                    class: "plain",
                    items: () => helpItems(filter, setFilter),
                }),
                button({ type: "button", onClick: () => withTools(tools => tools.chooseView()) }, "Views"),
                button({ type: "button", onClick: () => withTools(tools => tools.chooseColumns(names)) }, "Columns"),
                Menu({ label: "Export", text: "Export", items: () => exportItems(all, names, filter, sort) }),
            ),
        ),
        !all.loaded.value && !failed ? LoadingBar({}) : null,
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
        ListFooter({
            rows: all,
            marks,
            renew: () => {
                generation.value += 1;
            },
        }),
    );
});

/**
 * @param {WindowedRows} rows
 * @param {Signal<number>} first
 */
function useRefreshing(rows, first) {
    useEffect(() => subscribe("list", () => rows.refresh(first.peek())), [rows]);
}

/** @param {(tools: typeof import("./experiments_tools.js")) => unknown} use loads what is seldom needed */
function withTools(use) {
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
        const shownStates = [
            ...new Set(["RUNNING", "QUEUED", "PAUSED", "ERROR", "COMPLETED", ...Object.keys(states), ...on]),
        ];
        const onlyMine = valuesOf(filter, "user").includes("me");
        return span(
            { class: "switches" },
            shownStates.map(state => {
                const { word, look } = stateLook(state);
                const pressed = on.has(state);
                const next = pressed ? [...on].filter(other => other !== state) : [...on, state];
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
                                    next.map(name => name.toLowerCase()),
                                ),
                                { replace: false },
                            ),
                    },
                    StateIcon({ look }),
                    `${word} `,
                    span({ class: "muted" }, count(states[state] ?? 0)),
                );
            }),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": onlyMine,
                    onClick: () => setFilter(withValues(filter, "user", onlyMine ? [] : ["me"]), { replace: false }),
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
        ["-label:old", "does not have the label"],
        ["user:me", "is mine"],
        ["started<7d", "started in the last seven days"],
        ["duration>2h", "took more than two hours"],
        ["trials>=100", "at least 100 trials"],
        ["best<0.3", "the best value of its metric"],
        ["hp.lr<1e-3", "a hyperparameter of the best trial"],
        ["pool:gpu,cpu", "in one of these pools"],
        ["archived:any", "includes archived"],
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
        { text: "CSV", hint, action: () => withTools(tools => tools.saveRows(rows, names, "csv")) },
        { text: "JSON", hint, action: () => withTools(tools => tools.saveRows(rows, names, "json")) },
        {
            text: "Copy as det",
            hint: "command",
            action: () => withTools(tools => tools.copyCommand(names, filter, sort)),
        },
    ];
}

const Empty = component((/** @type {{ filtered: boolean, clear: () => void }} */ { filtered, clear }) =>
    filtered
        ? div(
              { class: "empty" },
              p(null, "No experiment matches this filter."),
              button({ type: "button", onClick: clear }, "Clear filter"),
          )
        : div(
              { class: "empty" },
              p(null, "No experiments yet. Create one from a folder with a configuration:"),
              pre(null, code(null, "det experiment create config.yaml . --follow-first-trial")),
          ),
);

const ListFooter = component(
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
                ? button({ type: "button", class: "plain", onClick: renew }, "List changed: refresh")
                : null,
            span({ class: "gap" }),
            marked ? span(null, `${number(marked)} marked`) : span({ class: "muted" }, "x marks the row"),
            CompareLink({ kind: "experiments", ids: [...marks.value.keys()].map(Number) }),
            button(
                {
                    type: "button",
                    disabled: rows.total.value === 0,
                    onClick: () => withTools(tools => tools.markAll(rows, marks)),
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
            !ACTIONS.some(action => may(action.permission))
                ? null
                : Menu({
                      label: "Actions for marked experiments",
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
    return ACTIONS.filter(action => may(action.permission)).map(action => ({
        text: `${action.text} …`,
        dangerous: action.dangerous ?? false,
        action: () => withTools(tools => tools.runAction(action, marks, renew)),
    }));
}
