/** Chooses one of an experiment's metrics; there may be thousands. */
import { useSignal } from "../../vendor/signals/signals.js";
import { visible } from "../lib/format.js";
import { component, tags } from "./tags.js";

/** @import { MetricName } from "../../types/api.d.ts" */

const { datalist, input, label, option, select } = tags;

const MAX_OPTIONS = 100; // of a list; beyond, one types

/**
 * @typedef {object} MetricChoiceProperties
 * @property {readonly MetricName[]} metrics
 * @property {string} group
 * @property {string} name
 * @property {(metric: MetricName) => void} onPick
 */
export const MetricPicker = component((/** @type {MetricChoiceProperties} */ { metrics, group, name, onPick }) => {
    const optionText = (/** @type {MetricName} */ metric) => `${metric.name} (${metric.group})`;
    const now = optionText({ group, name });
    const typed = useSignal("");
    /** @param {string} text */
    const pick = text => {
        const match =
            metrics.find(metric => optionText(metric) === text) ?? metrics.find(metric => metric.name === text);
        if (match) onPick(match);
    };
    if (metrics.length <= MAX_OPTIONS) {
        const listed = metrics.some(metric => optionText(metric) === now) ? metrics : [{ group, name }, ...metrics];
        return label(
            { class: "chart-tool" },
            "Metric",
            select(
                { value: now, onChange: event => pick(event.currentTarget.value) },
                listed.map(metric =>
                    option({ key: optionText(metric), value: optionText(metric) }, visible(optionText(metric), 60)),
                ),
            ),
        );
    }
    return label(
        { class: "chart-tool" },
        "Metric",
        input({
            type: "text",
            list: "metrics",
            defaultValue: now,
            key: now,
            onInput: event => {
                const text = event.currentTarget.value;
                typed.value = text;
                // Choosing from the list is input too.
                const match = metrics.find(metric => optionText(metric) === text);
                if (match && text !== now) onPick(match);
            },
            onChange: event => pick(event.currentTarget.value),
        }),
        datalist(
            { id: "metrics" },
            metrics
                .filter(metric => optionText(metric).toLowerCase().includes(typed.value.toLowerCase()))
                .slice(0, MAX_OPTIONS)
                .map(metric => option({ key: optionText(metric), value: optionText(metric) })),
        ),
    );
});
