/** The curves of what is compared, one above the other. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { plural, visible } from "../lib/format.js";
import { Chart } from "../ui/chart.js";
import { MetricPicker } from "../ui/metric_picker.js";
import { location, setQuery } from "../ui/router.js";
import { component, tags } from "../ui/tags.js";

/** @import { Comparison } from "../../types/api.d.ts" */
/** @import { CompareView } from "./compare.js" */

const { div, label, option, p, select } = tags;

const AXES = [
    ["", "batches"],
    ["seconds", "seconds"],
];

export const CompareCurves = component((/** @type {{ view: CompareView }} */ { view }) => {
    const { answer, noun } = view;
    const { query } = location.value;
    const grid = answer.curves;
    const data = useMemo(() => {
        const places = new Map((grid?.trials ?? []).map((id, at) => [id, at]));
        const x = grid?.x ?? [];
        return {
            label: `${answer.metric || "Curves"} of ${plural(answer.things.length, noun)}`,
            xTitle: answer.xName,
            yTitle: answer.metric,
            x,
            series: answer.things.map(item => ({
                name: nameOf(noun, item.id, item.trial),
                y: x.map((_, at) => grid?.y[places.get(item.trial ?? 0) ?? -1]?.[at] ?? null),
                bold: item.id === view.baseline,
            })),
            source: `${answer.kind} ${answer.things.map(item => item.id).join(", ")}: ${answer.group} ${answer.metric}`,
        };
    }, [answer, view.baseline]);
    const x = query.get("x") ?? "";
    const axes = [...AXES, ...(x && x !== "seconds" ? [[x, x]] : progressMetrics(answer))];
    const tools = [
        MetricPicker({
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
                axes.map(([value, words]) => option({ key: value, value }, visible(words ?? "", 40))),
            ),
        ),
    ];
    if (!grid)
        return div(
            { class: "section-head" },
            tools,
            p({ class: "muted" }, "None of these has a value of this metric."),
        );
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
function progressMetrics(answer) {
    return answer.metrics
        .filter(metric => metric.group === answer.group && /^(epochs?|steps?|records|iterations?)$/.test(metric.name))
        .map(metric => [metric.name, metric.name]);
}

/** @param {string} noun @param {number} id @param {number | null} trial */
function nameOf(noun, id, trial) {
    return noun === "experiment" && trial !== null ? `experiment ${id} (trial ${trial})` : `${noun} ${id}`;
}
