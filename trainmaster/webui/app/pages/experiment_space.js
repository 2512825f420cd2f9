/** The space that a search looks through: parallel coordinates, which hyperparameters matter, two of them as points. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { inside, kindsOf, rangePlaces, scaleOf } from "../lib/axes.js";
import { count, percent, plural, visible } from "../lib/format.js";
import { importance } from "../lib/importance.js";
import { stateOf } from "../lib/trials.js";
import { StateLabel, Value } from "../ui/cells.js";
import { Menu } from "../ui/overlay.js";
import { Parallel } from "../ui/parallel.js";
import { href, location, setQuery } from "../ui/router.js";
import { Scatter } from "../ui/scatter.js";
import { Table, useRows } from "../ui/table.js";
import { tableExportItems } from "../ui/table_export.js";
import { component, tags } from "../ui/tags.js";

import { hasTwoMetrics, ParetoFront } from "./experiment_pareto.js";

/** @import { ExperimentHead } from "../../types/api.d.ts" */
/** @import { ExperimentView } from "./experiment.js" */
/** @import { Kinds, Values } from "../lib/axes.js" */
/** @import { Cell } from "../lib/files.js" */

const { a, button, div, h2, label, li, option, p, section, select, span, ul } = tags;

const MOST_AXES = 10; // of the most important hyperparameters, beside the value

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { board, trials, marks } = view;
    const { smallerIsBetter, metric } = board.experiment;
    const names = board.hparams.map(name => `hp.${name}`);
    const at = location.value;
    const goal = (/** @type {Values} */ row) => {
        const best = row["best"];
        return typeof best === "number" ? (smallerIsBetter ? best : -best) : null;
    };
    const kinds = kindsOf(board);
    const source = `experiment ${board.experiment.id}`;
    const shares = useMemo(() => importance(trials, names, goal, kinds), [trials]);
    const ordered = shares.length ? shares.map(entry => entry.name) : names;
    const axes = useMemo(
        () => [...ordered.filter(name => scaleOf(name, trials, kinds)).slice(0, MOST_AXES), "best"],
        [shares],
    );
    const ranges = readRanges(at.query.get("ranges") ?? "");
    const chosen = useMemo(() => rowsInRanges(trials, ranges, kinds), [trials, at.query.get("ranges")]);
    const titleOf = (/** @type {string} */ name) => (name === "best" ? metric : name.replace(/^hp\./, ""));
    const x = at.query.get("hx") || ordered[0] || "";
    const y = at.query.get("hy") || "best";
    const colour = at.query.get("hc") ?? "";
    if (names.length === 0) {
        return div(
            { class: "empty" },
            p(null, "All trials have the same hyperparameters."),
            Constants({ values: board.constants }),
            hasTwoMetrics(board) ? ParetoFront({ view, rows: trials, names: [] }) : null,
        );
    }
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            div(
                { class: "section-head" },
                h2(null, "Trials across their hyperparameters"),
                span(
                    { class: "muted" },
                    `${plural(chosen.length, "trial")} of ${count(trials.length)}; drag on an axis to choose a range`,
                ),
                Object.keys(ranges).length
                    ? button({ type: "button", onClick: () => setQuery({ ranges: null }) }, "All trials")
                    : null,
                button(
                    {
                        type: "button",
                        disabled: chosen.length === 0 || chosen.length === trials.length,
                        onClick: () => {
                            marks.value = new Set(chosen.map(row => Number(row["id"])));
                        },
                    },
                    "Mark these",
                ),
            ),
            Parallel({
                rows: trials,
                names: axes,
                titleOf,
                smaller: smallerIsBetter,
                ranges,
                onRanges: next => setQuery({ ranges: writeRanges(next) || null }),
                marked: marks.value,
                kinds,
                source,
            }),
        ),
        section(
            null,
            h2(null, "Importance"),
            shares.length
                ? Importance({ shares, titleOf, x, onPick: name => setQuery({ hx: name }) })
                : p({ class: "muted" }, "Needs ten trials with a value."),
            Constants({ values: board.constants }),
        ),
        section(
            null,
            div(
                { class: "section-head" },
                h2(null, "Scatter plot"),
                ColumnSelect({
                    text: "x",
                    value: x,
                    names: [...ordered, "best"],
                    titleOf,
                    onPick: name => setQuery({ hx: name }),
                }),
                ColumnSelect({
                    text: "y",
                    value: y,
                    names: ["best", ...ordered],
                    titleOf,
                    onPick: name => setQuery({ hy: name }),
                }),
                ColumnSelect({
                    text: "Colour",
                    value: colour,
                    names: ["", ...ordered, "best"],
                    titleOf,
                    onPick: name => setQuery({ hc: name }),
                }),
            ),
            Scatter({
                rows: chosen,
                x,
                y,
                colour,
                titleOf,
                marked: marks.value,
                kinds,
                source,
                onPick: id => {
                    const next = new Set(marks.value);
                    if (!next.delete(id)) next.add(id);
                    marks.value = next;
                },
            }),
        ),
        hasTwoMetrics(board) ? ParetoFront({ view, rows: chosen, names: ordered }) : null,
        section(
            { class: "wide fixed-table" },
            div(
                { class: "section-head" },
                h2(null, "Selected trials"),
                span({ class: "gap" }),
                Menu({
                    label: "Export these trials",
                    text: "Export",
                    items: () =>
                        tableExportItems({
                            name: `experiment-${board.experiment.id}-chosen-trials`,
                            head: board.columns,
                            rows: chosen.map(row => board.columns.map(key => /** @type {Cell} */ (row[key]))),
                            command: `det experiment list-trials ${board.experiment.id}`,
                        }),
                }),
            ),
            ChosenTrials({ rows: chosen, names: ordered, head: board.experiment }),
        ),
    );
});

const Importance = component(
    (
        /** @type {{ shares: { name: string, share: number }[], titleOf: (name: string) => string, x: string, onPick: (name: string) => void }} */ {
            shares,
            titleOf,
            x,
            onPick,
        },
    ) =>
        ul(
            { class: "bars", "aria-label": "Importance of hyperparameters" },
            shares.slice(0, 20).map(hparam =>
                li(
                    { key: hparam.name },
                    button(
                        {
                            type: "button",
                            class: "plain",
                            "aria-pressed": hparam.name === x,
                            title: visible(hparam.name),
                            onClick: () => onPick(hparam.name),
                        },
                        visible(titleOf(hparam.name), 40),
                    ),
                    span(
                        { class: "bar", "aria-hidden": "true" },
                        span({ style: { width: `${Math.max(1, hparam.share * 100)}%` } }),
                    ),
                    span({ class: "number" }, percent(hparam.share)),
                ),
            ),
        ),
);

const Constants = component((/** @type {{ values: { [name: string]: unknown } }} */ { values }) => {
    const names = Object.keys(values);
    if (names.length === 0) return null;
    return div(
        { class: "constants" },
        span({ class: "muted" }, "Constant: "),
        names
            .slice(0, 50)
            .map((name, at) =>
                span({ key: name }, at ? ", " : "", `${visible(name, 60)} ${visible(plain(values[name]), 60)}`),
            ),
        names.length > 50 ? ` and ${names.length - 50} more` : "",
    );
});

/** @param {unknown} value */
function plain(value) {
    return typeof value === "string" ? value : JSON.stringify(value);
}

const ColumnSelect = component(
    (
        /** @type {{ text: string, value: string, names: string[], titleOf: (name: string) => string, onPick: (name: string) => void }} */ {
            text,
            value,
            names,
            titleOf,
            onPick,
        },
    ) =>
        label(
            { class: "chart-tool" },
            text,
            select(
                { value, onChange: event => onPick(event.currentTarget.value) },
                names.map(name => option({ key: name, value: name }, name ? visible(titleOf(name), 40) : "none")),
            ),
        ),
);

const ChosenTrials = component(
    (/** @type {{ rows: readonly Values[], names: string[], head: ExperimentHead }} */ { rows, names, head }) => {
        const ranked = useMemo(
            () =>
                [...rows].sort(
                    (a, b) => Number(a["rank"] ?? 1e9) - Number(b["rank"] ?? 1e9) || Number(a["id"]) - Number(b["id"]),
                ),
            [rows],
        );
        const list = useRows(ranked);
        return Table({
            label: "Trials in the chosen ranges",
            rows: list,
            rowKey: (/** @type {Values} */ row) => Number(row["id"]),
            address: (/** @type {Values} */ row) => href(`trials/${row["id"]}`),
            columns: [
                {
                    key: "id",
                    title: "Trial",
                    width: 90,
                    unsorted: true,
                    cell: (/** @type {Values} */ row) =>
                        a({ href: href(`trials/${row["id"]}`), tabIndex: -1 }, String(row["id"])),
                },
                {
                    key: "state",
                    title: "State",
                    width: 172,
                    unsorted: true,
                    cell: (/** @type {Values} */ row) => StateLabel({ state: stateOf(row, head) }),
                },
                {
                    key: "best",
                    title: visible(head.metric, 40),
                    width: 100,
                    align: "right",
                    unsorted: true,
                    cell: (/** @type {Values} */ row) => Value({ value: row["best"] }),
                },
                ...names.map(name => ({
                    key: name,
                    title: visible(name.replace(/^hp\./, ""), 40),
                    width: 110,
                    align: /** @type {const} */ ("right"),
                    unsorted: true,
                    cell: (/** @type {Values} */ row) => Value({ value: row[name] }),
                })),
            ],
        });
    },
);

/** @param {string} text @returns {Record<string, string>} */
function readRanges(text) {
    return Object.fromEntries(
        text
            .split(",")
            .map(part => [part.slice(0, part.indexOf(":")), part.slice(part.indexOf(":") + 1)].map(decoded))
            .filter(([name, range]) => name && range),
    );
}

/** @param {Record<string, string>} ranges */
function writeRanges(ranges) {
    return Object.entries(ranges)
        .map(([name, range]) => `${escaped(name)}:${escaped(range)}`)
        .join(",");
}

/** Names may hold what separates them. @param {string} text */
function escaped(text) {
    return text.replace(/[%,:]/g, character => encodeURIComponent(character));
}

/** @param {string} text */
function decoded(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

/** @param {readonly Values[]} rows @param {Record<string, string>} ranges @param {Kinds} kinds */
function rowsInRanges(rows, ranges, kinds) {
    const tests = Object.entries(ranges).flatMap(([name, text]) => {
        const axis = scaleOf(name, rows, kinds);
        const range = axis ? rangePlaces(axis, text) : null;
        return axis && range ? [{ axis, range }] : [];
    });
    return rows.filter(row =>
        tests.every(({ axis, range }) => {
            const position = axis.position(row[axis.name]);
            return position !== null && inside(position, range[0], range[1]);
        }),
    );
}
