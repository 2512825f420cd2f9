/** The curves of what is compared, one above the other. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { plural, visible } from "../lib/format.js";
import { Chart } from "../ui/chart.js";
import { MetricChoice } from "../ui/metric_choice.js";
import { place, setQuery } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { Comparison } from "../../types/api.d.ts" */
/** @import { CompareView } from "./compare.js" */

const { div, label, option, p, select } = tags;

const WAYS = [
    ["", "batches"],
    ["seconds", "seconds"],
];

export const CompareCurves = component((/** @type {{ view: CompareView }} */ { view }) => {
    const { answer, one } = view;
    const { query } = place.value;
    const grid = answer.curves;
    const data = useMemo(() => {
        const places = new Map((grid?.trials ?? []).map((id, at) => [id, at]));
        const x = grid?.x ?? [];
        return {
            label: `${answer.metric || "Curves"} of ${plural(answer.things.length, one)}`,
            xTitle: answer.xName,
            yTitle: answer.metric,
            x,
            series: answer.things.map(thing => ({
                name: nameOf(one, thing.id, thing.trial),
                y: x.map((_, at) => grid?.y[places.get(thing.trial ?? 0) ?? -1]?.[at] ?? null),
                bold: thing.id === view.baseline,
            })),
            source: `${answer.kind} ${answer.things.map(thing => thing.id).join(", ")}: ${answer.group} ${answer.metric}`,
        };
    }, [answer, view.baseline]);
    const x = query.get("x") ?? "";
    const ways = [...WAYS, ...(x && x !== "seconds" ? [[x, x]] : timesOf(answer))];
    const tools = [
        MetricChoice({
            metrics: answer.metrics,
            group: answer.group,
            name: answer.metric,
            onPick: picked => setQuery({ metric: picked.name, group: picked.group }),
        }),
        label(
            { class: "chart-tool" },
            "over",
            select(
                { value: x, onChange: event => setQuery({ x: event.currentTarget.value || null }) },
                ways.map(([value, words]) => option({ key: value, value }, visible(words ?? "", 40))),
            ),
        ),
    ];
    if (!grid)
        return div({ class: "section-head" }, tools, p({ class: "muted" }, "None of them has a value of this metric."));
    return Chart(
        {
            data,
            height: 340,
            settings: {
                log: query.get("log") === "1",
                logX: query.get("logx") === "1",
                smooth: Number(query.get("smooth") ?? 0) || 0,
                table: query.get("table") === "1",
                set: changes =>
                    setQuery(
                        Object.fromEntries(
                            Object.entries(changes).map(([name, value]) => [
                                name.toLowerCase(),
                                value === true ? "1" : value ? String(value) : null,
                            ]),
                        ),
                        { replace: "smooth" in changes },
                    ),
            },
        },
        tools,
    );
});

/** Metrics that likely say how long a trial has trained. @param {Comparison} answer */
function timesOf(answer) {
    return answer.metrics
        .filter(one => one.group === answer.group && /^(epochs?|steps?|records|iterations?)$/.test(one.name))
        .map(one => [one.name, one.name]);
}

/** @param {string} one @param {number} id @param {number | null} trial */
function nameOf(one, id, trial) {
    return one === "experiment" && trial !== null ? `experiment ${id} (trial ${trial})` : `${one} ${id}`;
}
