/** Two validation metrics against each other, and the trials that no other trial beats in both. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { get } from "../api/http.js";
import { count, plural, visible } from "../lib/format.js";
import { paretoFront, smallerIsLikely } from "../lib/pareto.js";
import { Value } from "../ui/cells.js";
import { PartError, useLoad } from "../ui/query.js";
import { href, location, setQuery } from "../ui/router.js";
import { Scatter } from "../ui/scatter.js";
import { LoadingBar } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { Curves, ExperimentBoard } from "../../types/api.d.ts" */
/** @import { Signal } from "../../vendor/signals/signals.js" */
/** @import { Values } from "../lib/axes.js" */
/** @import { Content } from "../../types/tags.d.ts" */
/** @import { ExperimentView, TrialRow } from "./experiment.js" */

const { a, caption, div, h2, label, option, p, section, select, span, table, tbody, td, th, thead, tr } = tags;

const MAX_ROWS = 50;
const MAX_HPARAMS = 8;
const MAX_METRICS = 200; // of a list

/** The validation metrics that may be compared. @param {ExperimentBoard} board */
function metricsOf({ metrics, experiment }) {
    const names = metrics.filter(metric => metric.group === "validation").map(metric => metric.name);
    // How long a trial has trained is no result, but may be what a result costs.
    return [
        ...names.filter(name => name !== experiment.timeMetric),
        ...names.filter(name => name === experiment.timeMetric),
    ];
}

/** Whether there are two results to choose between. @param {ExperimentBoard} board */
export function hasTwoMetrics(board) {
    return metricsOf(board).filter(name => name !== board.experiment.timeMetric).length > 1;
}

export const ParetoFront = component(
    (/** @type {{ view: ExperimentView, rows: readonly TrialRow[], names: string[] }} */ { view, rows, names }) => {
        const { board, marks } = view;
        const head = board.experiment;
        const { query } = location.value;
        const metrics = metricsOf(board);
        const x = query.get("px") || head.metric || (metrics[0] ?? "");
        const y = query.get("py") || (metrics.find(name => name !== x) ?? "");
        const smallerX = isSmaller(query.get("pxbest"), x, head);
        const smallerY = isSmaller(query.get("pybest"), y, head);
        // Again when a trial has changed its state.
        const key = JSON.stringify([head.id, x, y, head.counts]);
        const { data, error } = useLoad(key, async () => Promise.all([lastValues(head.id, x), lastValues(head.id, y)]));
        const shown = useMemo(() => rowsWith(rows, data, x, y), [rows, data]);
        const front = useMemo(
            () =>
                paretoFront(
                    shown.map(row => ({
                        id: Number(row["id"]),
                        x: Number(row[columnOf(x)]),
                        y: Number(row[columnOf(y)]),
                    })),
                    smallerX,
                    smallerY,
                ),
            [shown, smallerX, smallerY],
        );
        const titleOf = (/** @type {string} */ name) => name.replace(/^metric\./, "");
        return section(
            { class: "wide", "aria-label": "Two metrics" },
            div(
                { class: "section-head" },
                h2(null, "Two metrics"),
                span({ class: "muted" }, "of each trial's last validation; ringed: no other trial beats it"),
            ),
            div(
                { class: "section-head" },
                MetricAxis({ text: "x", metrics, value: x, smaller: smallerX, name: "px" }),
                MetricAxis({ text: "y", metrics, value: y, smaller: smallerY, name: "py" }),
            ),
            error ? PartError({ error }) : data ? null : LoadingBar({}),
            data
                ? div(
                      { class: "pareto" },
                      Scatter({
                          rows: shown,
                          x: columnOf(x),
                          y: columnOf(y),
                          titleOf,
                          marked: marks.value,
                          front: front.map(point => point.id),
                          kinds: {},
                          source: `experiment ${head.id}`,
                          name: "two metrics",
                          onPick: id => toggle(marks, id),
                      }),
                      div(
                          { class: "pareto-table" },
                          FrontTable({ ids: front.map(point => point.id), rows: shown, x, y, names }),
                      ),
                  )
                : null,
        );
    },
);

/** @param {Signal<Set<number>>} marks @param {number} id */
function toggle(marks, id) {
    const next = new Set(marks.value);
    if (!next.delete(id)) next.add(id);
    marks.value = next;
}

/** @param {string | null} chosen @param {string} metric @param {ExperimentBoard["experiment"]} head */
function isSmaller(chosen, metric, head) {
    if (chosen !== null) return chosen !== "larger";
    return metric === head.metric ? head.smallerIsBetter : smallerIsLikely(metric);
}

/** Hyperparameters and metrics may have the same name. @param {string} metric */
const columnOf = metric => `metric.${metric}`;

/**
 * The last value of each trial.
 * @param {number} experiment
 * @param {string} metric
 * @returns {Promise<Map<number, number>>}
 */
async function lastValues(experiment, metric) {
    const query = new URLSearchParams({ metric, group: "validation", points: "2" });
    /** @type {Curves} */
    const curves = await get(`api/x1/experiments/${experiment}/curves?${query}`);
    return new Map(
        curves.trials.flatMap((id, at) => {
            const value = curves.y[at]?.at(-1) ?? null;
            return value === null ? [] : [/** @type {const} */ ([id, value])];
        }),
    );
}

/**
 * @param {readonly TrialRow[]} rows
 * @param {Map<number, number>[] | null} values
 * @param {string} x
 * @param {string} y
 * @returns {Values[]}
 */
function rowsWith(rows, values, x, y) {
    const [ofX, ofY] = values ?? [];
    return rows.flatMap(row => {
        const [vx, vy] = [ofX?.get(Number(row["id"])), ofY?.get(Number(row["id"]))];
        return vx === undefined || vy === undefined ? [] : [{ ...row, [columnOf(x)]: vx, [columnOf(y)]: vy }];
    });
}

const MetricAxis = component(
    (
        /** @type {{ text: string, metrics: string[], value: string, smaller: boolean, name: string }} */ {
            text,
            metrics,
            value,
            smaller,
            name,
        },
    ) => {
        const listed = [...new Set([value, ...metrics.slice(0, MAX_METRICS)])];
        return span(
            { class: "pareto-axis" },
            label(
                { class: "chart-tool" },
                text,
                select(
                    {
                        value,
                        onChange: event => setQuery({ [name]: event.currentTarget.value, [`${name}best`]: null }),
                    },
                    listed.map(metric => option({ key: metric, value: metric }, visible(metric, 60))),
                ),
            ),
            select(
                {
                    "aria-label": `Which ${text} is better`,
                    value: smaller ? "smaller" : "larger",
                    onChange: event => setQuery({ [`${name}best`]: event.currentTarget.value }),
                },
                option({ value: "smaller" }, "smaller is better"),
                option({ value: "larger" }, "larger is better"),
            ),
        );
    },
);

const FrontTable = component(
    (
        /** @type {{ ids: number[], rows: readonly Values[], x: string, y: string, names: string[] }} */ {
            ids,
            rows,
            x,
            y,
            names,
        },
    ) => {
        const byId = new Map(rows.map(row => [Number(row["id"]), row]));
        const hparams = names.slice(0, MAX_HPARAMS);
        const heads = ["Trial", x, y, ...hparams.map(name => name.replace(/^hp\./, ""))];
        if (ids.length === 0) return p({ class: "muted" }, "No trial has reported both.");
        const beyond = ids.length > MAX_ROWS ? `, the first ${MAX_ROWS} of them` : "";
        return table(
            { class: "rung-table" },
            caption(null, `${count(ids.length)} of ${plural(rows.length, "trial")} that no other beats${beyond}`),
            thead(
                null,
                tr(
                    null,
                    heads.map((name, at) => th({ key: at, scope: "col" }, visible(name, 40))),
                ),
            ),
            tbody(
                null,
                ids.slice(0, MAX_ROWS).map(id => {
                    const row = byId.get(id) ?? {};
                    /** @param {string} name @returns {Content} */
                    const cell = name => td({ key: name }, Value({ value: row[name] }));
                    return tr(
                        { key: id },
                        th({ scope: "row" }, a({ href: href(`trials/${id}`) }, String(id))),
                        [columnOf(x), columnOf(y), ...hparams].map(cell),
                    );
                }),
            ),
        );
    },
);
