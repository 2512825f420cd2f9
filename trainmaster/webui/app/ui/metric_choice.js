/** Chooses one of an experiment's metrics; there may be thousands. */
import { useSignal } from "../../vendor/signals/signals.js";
import { visible } from "../lib/format.js";
import { component, tags } from "./tags.js";

/** @import { MetricName } from "../../types/api.d.ts" */

const { datalist, input, label, option, select } = tags;

const MOST_OPTIONS = 100; // of a list; beyond, one types

/**
 * @typedef {object} MetricChoiceProperties
 * @property {readonly MetricName[]} metrics
 * @property {string} group
 * @property {string} name
 * @property {(metric: MetricName) => void} onPick
 */
export const MetricChoice = component((/** @type {MetricChoiceProperties} */ { metrics, group, name, onPick }) => {
    const written = (/** @type {MetricName} */ one) => `${one.name} (${one.group})`;
    const now = written({ group, name });
    const typed = useSignal("");
    /** @param {string} text */
    const pick = text => {
        const found = metrics.find(one => written(one) === text) ?? metrics.find(one => one.name === text);
        if (found) onPick(found);
    };
    if (metrics.length <= MOST_OPTIONS) {
        const known = metrics.some(one => written(one) === now) ? metrics : [{ group, name }, ...metrics];
        return label(
            { class: "chart-tool" },
            "Metric",
            select(
                { value: now, onChange: event => pick(event.currentTarget.value) },
                known.map(one => option({ key: written(one), value: written(one) }, visible(written(one), 60))),
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
                const found = metrics.find(one => written(one) === text);
                if (found && text !== now) onPick(found);
            },
            onChange: event => pick(event.currentTarget.value),
        }),
        datalist(
            { id: "metrics" },
            metrics
                .filter(one => written(one).toLowerCase().includes(typed.value.toLowerCase()))
                .slice(0, MOST_OPTIONS)
                .map(one => option({ key: written(one), value: written(one) })),
        ),
    );
});
