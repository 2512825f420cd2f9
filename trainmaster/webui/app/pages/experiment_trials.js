/** All trials of an experiment as a table: sorted and filtered here, with heat in its columns and a curve in each row. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { useComputed } from "../../vendor/signals/signals.js";
import { kindsOf, scaleOf } from "../lib/axes.js";
import { count, plural, visible } from "../lib/format.js";
import { hasCopies } from "../lib/lineage.js";
import { stateLook } from "../lib/states.js";
import { shortReason, stateOf } from "../lib/trials.js";
import { Duration, RelativeTime, StateLabel, Value } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { href, location, setQuery } from "../ui/router.js";
import { Sparkline } from "../ui/sparkline.js";
import { CompareLink, Table, useRows } from "../ui/table.js";
import { tableExportItems } from "../ui/table_export.js";
import { component, tags } from "../ui/tags.js";

/** @import { ExperimentHead } from "../../types/api.d.ts" */
/** @import { ExperimentView, TrialRow } from "./experiment.js" */
/** @import { Column } from "../ui/table.js" */
/** @import { Cell } from "../lib/files.js" */

const { a, button, div, input, p, span } = tags;

const SPARK = 30; // values of a curve in a row
const STEPS = 5; // shades of heat

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { board, trials, marks } = view;
    const head = board.experiment;
    const { query } = location.value;
    const filter = query.get("trials") ?? "";
    const sort = query.get("sort") ?? (head.smallerIsBetter ? "best" : "-best");
    const heat = query.get("heat") === "yes";
    const columns = useMemo(() => columnsOf(view, heat), [board, heat]);
    const shown = useMemo(() => sortRows(filterRows(trials, filter, head), sort), [trials, filter, sort]);
    const rows = useRows(shown, `${filter} ${sort}`);
    // The table keeps rows beside their keys; all tabs share the keys.
    const markedRows = useComputed(
        () => new Map(trials.filter(row => marks.value.has(Number(row["id"]))).map(row => [Number(row["id"]), row])),
    );
    const marked = useMemo(
        () => ({
            get value() {
                return markedRows.value;
            },
            set value(next) {
                marks.value = new Set([...next.keys()].map(Number));
            },
            peek: () => markedRows.peek(),
        }),
        [markedRows],
    );
    if (trials.length === 0) return div({ class: "empty" }, p(null, "No trials yet."));
    return div(
        { class: "table-page" },
        div(
            { class: "section-head" },
            input({
                type: "search",
                value: filter,
                placeholder: "Filter by state, reason, job or node",
                "aria-label": "Filter trials",
                onInput: event => setQuery({ trials: event.currentTarget.value || null }, { replace: true }),
            }),
            span({ class: "muted" }, `${count(shown.length)} of ${plural(trials.length, "trial")}`),
            button(
                {
                    type: "button",
                    class: "switch",
                    "aria-pressed": heat,
                    onClick: () => setQuery({ heat: heat ? null : "yes" }),
                },
                "colour values",
            ),
            span({ class: "gap" }),
            marks.value.size
                ? span(null, `${plural(marks.value.size, "trial")} marked`)
                : span({ class: "muted" }, "x marks the row"),
            CompareLink({ kind: "trials", ids: [...marks.value] }),
            Menu({ label: "Export trials", text: "Export", items: () => exports(view, shown) }),
        ),
        Table({
            label: "Trials",
            columns,
            rows,
            rowKey: (/** @type {TrialRow} */ row) => Number(row["id"]),
            address: (/** @type {TrialRow} */ row) => href(`trials/${row["id"]}`),
            marks: /** @type {any} */ (marked),
            sort,
            onSort: next => setQuery({ sort: next || null }),
        }),
    );
});

/**
 * @param {ExperimentView} view
 * @param {boolean} heat
 * @returns {Column<TrialRow>[]}
 */
function columnsOf({ board, trials }, heat) {
    const head = board.experiment;
    const kinds = kindsOf(board);
    const places = new Map((board.curves?.trials ?? []).map((id, at) => [id, at]));
    const measured = (/** @type {string} */ key, /** @type {string} */ title) => {
        const axis = heat ? scaleOf(key, trials, kinds) : null;
        return {
            key,
            title: visible(title, 40),
            width: Math.min(180, Math.max(96, title.length * 9 + 16)),
            align: /** @type {const} */ ("right"),
            cell: (/** @type {TrialRow} */ row) => {
                const at = axis?.position(row[key]) ?? null;
                const shade = at === null ? "" : `heat-${Math.min(STEPS - 1, Math.floor(at * STEPS))}`;
                return span({ class: shade }, Value({ value: row[key] }));
            },
        };
    };
    return [
        {
            key: "why",
            title: "Trial",
            width: 320,
            cell: row => [
                a(
                    {
                        href: href(`trials/${row["id"]}`),
                        tabIndex: -1,
                        title: visible(String(row["why"] || row["waits"] || "")),
                    },
                    span({ class: "muted id" }, String(row["id"])),
                    visible(shortReason(row), 200),
                ),
            ],
        },
        {
            key: "state",
            title: "State",
            width: 172,
            cell: row => StateLabel({ state: stateOf(row, head) }),
        },
        measured("best", head.metric || "best"),
        {
            key: "curve",
            title: "Curve",
            width: 100,
            unsorted: true,
            cell: row => Sparkline({ values: thinOut(board.curves?.y[places.get(Number(row["id"])) ?? -1] ?? []) }),
        },
        {
            key: "units",
            title: visible(head.timeMetric || "units", 20),
            width: 80,
            align: "right",
            falling: true,
            cell: row => Value({ value: row["units"] }),
        },
        ...(board.brackets.length
            ? [
                  {
                      key: "rung",
                      title: "Rung",
                      width: 70,
                      align: /** @type {const} */ ("right"),
                      falling: true,
                      cell: (/** @type {TrialRow} */ row) =>
                          typeof row["rung"] === "number" ? String(row["rung"] + 1) : "–",
                  },
              ]
            : []),
        ...board.hparams.map(name => measured(`hp.${name}`, name)),
        ...(hasCopies(board)
            ? [
                  {
                      key: "parent",
                      title: "Copy of",
                      width: 90,
                      align: /** @type {const} */ ("right"),
                      cell: (/** @type {TrialRow} */ row) =>
                          row["parent"]
                              ? a({ href: href(`trials/${row["parent"]}`), tabIndex: -1 }, String(row["parent"]))
                              : "–",
                  },
              ]
            : []),
        ...(trials.some(row => row["pauses"])
            ? [
                  {
                      key: "pauses",
                      title: "Pauses",
                      width: 80,
                      align: /** @type {const} */ ("right"),
                      falling: true,
                      cell: (/** @type {TrialRow} */ row) => count(Number(row["pauses"])),
                  },
              ]
            : []),
        {
            key: "attempts",
            title: "Jobs",
            width: 70,
            align: "right",
            falling: true,
            cell: row => count(Number(row["attempts"])),
        },
        {
            key: "slotSeconds",
            title: "Slot time",
            width: 100,
            align: "right",
            falling: true,
            cell: row => Duration({ seconds: Number(row["slotSeconds"]) }),
        },
        {
            key: "started",
            title: "Started",
            width: 90,
            align: "right",
            falling: true,
            cell: row => RelativeTime({ seconds: /** @type {number | null} */ (row["started"]) }),
        },
    ];
}

/** @param {readonly (number | null)[]} values */
function thinOut(values) {
    const step = Math.max(1, Math.ceil(values.length / SPARK));
    return values.filter((value, at) => value !== null && (at % step === 0 || at === values.length - 1));
}

/** @param {TrialRow[]} rows @param {string} filter @param {ExperimentHead} head */
function filterRows(rows, filter, head) {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return rows;
    return rows.filter(row => {
        const text = [
            row["id"],
            row["state"],
            stateLook(stateOf(row, head)).word,
            row["why"],
            row["waits"],
            row["job"],
            row["nodes"],
            row["stop"],
        ]
            .join(" ")
            .toLowerCase();
        return words.every(word => text.includes(word));
    });
}

/** @param {TrialRow[]} rows @param {string} sort */
function sortRows(rows, sort) {
    const parts = sort
        .split(",")
        .filter(Boolean)
        .map(part => ({ key: part.replace(/^-/, ""), way: part.startsWith("-") ? -1 : 1 }));
    return [...rows].sort((a, b) => {
        for (const { key, way: direction } of parts) {
            const order = compareValues(a[key], b[key], direction);
            if (order) return order;
        }
        return Number(a["id"]) - Number(b["id"]);
    });
}

/** What is missing or no number comes last, whichever way. @param {unknown} a @param {unknown} b @param {number} direction */
function compareValues(a, b, direction) {
    const rank = (/** @type {unknown} */ value) =>
        typeof value === "number" ? 0 : value === null || value === undefined ? 2 : 1;
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    if (typeof a === "number" && typeof b === "number") return (a - b) * direction;
    return String(a ?? "").localeCompare(String(b ?? "")) * direction;
}

/** @param {ExperimentView} view @param {TrialRow[]} rows */
function exports({ board }, rows) {
    return tableExportItems({
        name: `experiment-${board.experiment.id}-trials`,
        head: board.columns,
        rows: rows.map(row => board.columns.map(key => /** @type {Cell} */ (row[key]))),
        command: `det experiment list-trials ${board.experiment.id}`,
    });
}
