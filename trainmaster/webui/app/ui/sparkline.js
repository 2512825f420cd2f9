/** A small line without axes: how a value has come along. */
import { component, tags } from "./tags.js";

const { path, svg } = tags;

const WIDTH = 80;
const HEIGHT = 18;

/** The values are told elsewhere too; this is for eyes. */
export const Sparkline = component((/** @type {{ values: readonly (number | null)[] }} */ { values }) => {
    const numbers = values.flatMap((value, at) => (value === null || !Number.isFinite(value) ? [] : [[at, value]]));
    if (numbers.length < 2) return svg({ class: "spark", width: WIDTH, height: HEIGHT, "aria-hidden": "true" });
    const low = Math.min(...numbers.map(point => point[1] ?? 0));
    const high = Math.max(...numbers.map(point => point[1] ?? 0));
    const last = Math.max(1, values.length - 1);
    const d = numbers
        .map(([at = 0, value = 0], step) => {
            const x = 1 + ((WIDTH - 2) * at) / last;
            const y = high > low ? 2 + (HEIGHT - 4) * (1 - (value - low) / (high - low)) : HEIGHT / 2;
            return `${step ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        })
        .join("");
    return svg(
        { class: "spark", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
        path({ d }),
    );
});
