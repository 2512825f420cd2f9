/** Which trial was continued from which: a genealogy over time, the way to the best trial, and all copies. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { clock } from "../api/state.js";
import { count, plural, visible } from "../lib/format.js";
import { changeText, descentOf, lanesOf } from "../lib/lineage.js";
import { lookOf } from "../lib/trials.js";
import { RelativeTime, Value } from "../ui/cells.js";
import { Genealogy } from "../ui/genealogy.js";
import { href, location, setQuery } from "../ui/router.js";
import { Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";

/** @import { Lane } from "../lib/lineage.js" */
/** @import { ExperimentView } from "./experiment.js" */

const { a, caption, div, h2, label, option, p, section, select, span, table, tbody, td, th, thead, tr } = tags;

const MINUTE = 60;
const MAX_STEPS = 50; // of the way to the best trial
const MAX_COLUMNS = 12;

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { board, trials, marks } = view;
    const head = board.experiment;
    const hours = location.value.query.get("over") === "hours";
    const now = head.ended ?? Math.floor(clock.value / 1000 / MINUTE) * MINUTE;
    const { lanes, left } = useMemo(
        () => lanesOf(trials, board.hparams, { units: !hours, now }),
        [trials, hours, hours ? now : 0],
    );
    const descent = useMemo(() => descentOf(lanes, head.bestTrial), [lanes, head.bestTrial]);
    const copies = useMemo(() => lanes.filter(lane => lane.parent), [lanes]);
    const unit = hours ? "hours since the first start" : visible(head.timeMetric || "batches", 40);
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            div(
                { class: "section-head" },
                h2(null, "Lineage"),
                span(
                    { class: "muted" },
                    `${plural(copies.length, "copy", "copies")} among ${plural(trials.length, "trial")}`,
                ),
                span({ class: "gap" }),
                label(
                    { class: "chart-tool" },
                    "over",
                    select(
                        {
                            value: hours ? "hours" : "",
                            onChange: event => setQuery({ over: event.currentTarget.value || null }),
                        },
                        option({ value: "" }, visible(head.timeMetric || "batches", 40)),
                        option({ value: "hours" }, "hours"),
                    ),
                ),
            ),
            left ? p({ class: "error-text" }, `${count(left)} trials are not drawn.`) : null,
            Genealogy({
                lanes,
                lookOf: lane => lookOf(lane.row, head),
                descent: useMemo(() => new Set(descent.map(lane => lane.id)), [descent]),
                marked: marks.value,
                unit,
                metric: head.metric,
                source: `experiment ${head.id}`,
                onPick: id => {
                    const next = new Set(marks.value);
                    if (!next.delete(id)) next.add(id);
                    marks.value = next;
                },
            }),
        ),
        descent.length > 1 ? section({ class: "wide" }, Way({ descent, unit, metric: head.metric })) : null,
        section(
            { class: "wide fixed-table" },
            h2(null, "All copies"),
            CopyTable({ copies, metric: head.metric, unit }),
        ),
    );
});

/** What the best trial was trained with, one after the other. */
const Way = component((/** @type {{ descent: Lane[], unit: string, metric: string }} */ { descent, unit, metric }) => {
    const names = [...new Set(descent.flatMap(lane => lane.changes.map(change => change.name)))].slice(0, MAX_COLUMNS);
    const heads = ["Trial", unit, ...names, visible(metric, 40)];
    return table(
        { class: "rung-table" },
        caption(null, "The way to the best trial, and the hyperparameters that changed on it"),
        thead(
            null,
            tr(
                null,
                heads.map(name => th({ key: name, scope: "col" }, visible(name, 40))),
            ),
        ),
        tbody(
            null,
            descent.slice(-MAX_STEPS).map((lane, at, all) =>
                tr(
                    { key: lane.id, class: at === all.length - 1 ? "leads" : "" },
                    th({ scope: "row" }, a({ href: href(`trials/${lane.id}`) }, String(lane.id))),
                    td(null, `${placeText(lane.from)} to ${placeText(all[at + 1]?.from ?? lane.to)}`),
                    names.map(name => td({ key: name }, Value({ value: lane.row[`hp.${name}`] }))),
                    td(null, Value({ value: lane.row["best"] })),
                ),
            ),
        ),
    );
});

/** @param {number} at */
function placeText(at) {
    return count(Math.round(at * 100) / 100);
}

const CopyTable = component(
    (/** @type {{ copies: Lane[], metric: string, unit: string }} */ { copies, metric, unit }) => {
        const rows = useRows(copies);
        const right = /** @type {const} */ ("right");
        const unsorted = /** @type {const} */ ({ unsorted: true });
        return Table({
            label: "Copies",
            rows,
            rowKey: (/** @type {Lane} */ lane) => lane.id,
            address: (/** @type {Lane} */ lane) => href(`trials/${lane.id}`),
            columns: [
                {
                    ...unsorted,
                    key: "id",
                    title: "Trial",
                    width: 80,
                    cell: lane => a({ href: href(`trials/${lane.id}`), tabIndex: -1 }, String(lane.id)),
                },
                {
                    ...unsorted,
                    key: "parent",
                    title: "Copy of",
                    width: 80,
                    cell: lane => a({ href: href(`trials/${lane.parent?.id}`), tabIndex: -1 }, String(lane.parent?.id)),
                },
                { ...unsorted, key: "from", title: unit, width: 90, align: right, cell: lane => placeText(lane.from) },
                {
                    ...unsorted,
                    key: "started",
                    title: "Created",
                    width: 100,
                    align: right,
                    cell: lane => RelativeTime({ seconds: /** @type {number | null} */ (lane.row["started"]) }),
                },
                {
                    ...unsorted,
                    key: "before",
                    title: `${visible(metric, 30)} of the parent`,
                    width: 160,
                    align: right,
                    cell: lane => Value({ value: lane.parent?.row["best"] }),
                },
                {
                    ...unsorted,
                    key: "best",
                    title: visible(metric, 40),
                    width: 100,
                    align: right,
                    cell: lane => Value({ value: lane.row["best"] }),
                },
                {
                    ...unsorted,
                    key: "changes",
                    title: "Changed hyperparameters",
                    width: 600,
                    cell: lane => span({ title: changeText(lane.changes) }, changeText(lane.changes)),
                },
            ],
        });
    },
);
