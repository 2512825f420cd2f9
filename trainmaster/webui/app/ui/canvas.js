/** A canvas that is drawn again when its data, its size or the theme change; it is sharp on every screen. */
import { useEffect, useRef } from "../../vendor/preact/hooks.js";
import { signal, useSignal } from "../../vendor/signals/signals.js";
import { component, tags } from "./tags.js";

const { canvas, div } = tags;

/** Counts changes of the theme: canvases that read it are drawn again. */
export const themes = signal(0);
const changed = () => {
    themes.value += 1;
};
addEventListener("themechange", changed);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);

export const FONT = "12px system-ui, DejaVu Sans, sans-serif";

/**
 * @typedef {object} Sheet
 * @property {number} width CSS pixels
 * @property {number} height
 * @property {(name: string) => string} colour
 * @property {(work: () => void) => void} next goes on with a long drawing: in the next frame, or at once on paper
 * @property {boolean} paper whether it is a file, where what stands beside the canvas is missing
 */
/** @typedef {(pen: CanvasRenderingContext2D, sheet: Sheet) => void} Draw */

/**
 * @typedef {object} DrawingProperties
 * @property {string} label what is to be seen, in words
 * @property {number} height pixels
 * @property {Draw} draw called again when it is another function
 * @property {(x: number, y: number, what: "move" | "down" | "up" | "leave", event: PointerEvent) => void} [onPointer]
 * @property {string} [class]
 */
export const Drawing = component(
    (/** @type {DrawingProperties} */ { label, height, draw, onPointer, class: named = "" }) => {
        const host = useRef(/** @type {HTMLDivElement | null} */ (null));
        const sheet = useRef(/** @type {HTMLCanvasElement | null} */ (null));
        const width = useSignal(0);
        const theme = themes.value;
        useEffect(() => {
            const element = host.current;
            if (!element) return undefined;
            const watcher = new ResizeObserver(() => {
                width.value = element.clientWidth;
            });
            watcher.observe(element);
            return () => watcher.disconnect();
        }, []);
        useEffect(() => {
            const element = sheet.current;
            const pen = element?.getContext("2d");
            if (!element || !pen || width.value === 0) return undefined;
            const sharp = devicePixelRatio || 1;
            element.width = Math.round(width.value * sharp);
            element.height = Math.round(height * sharp);
            pen.scale(sharp, sharp);
            pen.font = FONT;
            let frame = 0;
            const next = (/** @type {() => void} */ work) => {
                frame = requestAnimationFrame(work);
            };
            draw(pen, { width: width.value, height, colour: colours(element), next, paper: false });
            return () => cancelAnimationFrame(frame);
        }, [draw, width.value, height, theme]);
        const handle =
            (/** @type {"move" | "down" | "up" | "leave"} */ what) => (/** @type {PointerEvent} */ event) => {
                if (!onPointer || !sheet.current) return;
                if (what === "down") sheet.current.setPointerCapture(event.pointerId);
                const box = sheet.current.getBoundingClientRect();
                onPointer(event.clientX - box.left, event.clientY - box.top, what, event);
            };
        return div(
            { ref: host, class: `drawing ${named}`, style: { height: `${height}px` } },
            canvas({
                ref: sheet,
                role: "img",
                "aria-label": label,
                style: { width: "100%", height: `${height}px` },
                onPointerMove: handle("move"),
                onPointerDown: handle("down"),
                onPointerUp: handle("up"),
                onPointerLeave: handle("leave"),
            }),
        );
    },
);

/**
 * Colours as a canvas understands them; in the style they are for two themes.
 * @param {HTMLElement} element
 * @returns {(name: string) => string}
 */
export function colours(element) {
    /** @type {Map<string, string>} */
    const cache = new Map();
    return name => {
        let value = cache.get(name);
        if (value === undefined) {
            const before = element.style.color;
            element.style.color = `var(${name})`;
            value = getComputedStyle(element).color;
            element.style.color = before;
            cache.set(name, value);
        }
        return value;
    };
}

// Cividis in nine steps: told apart also by those who see few colours, and in grey.
const CIVIDIS = ["#00224e", "#15396d", "#434e6c", "#61646f", "#7d7c78", "#9b9676", "#bab06d", "#dccb58", "#fee838"];

/**
 * The colour of a value: dark for 0, light for 1.
 * @param {number} share
 */
export function cividis(share) {
    return CIVIDIS[Math.min(CIVIDIS.length - 1, Math.max(0, Math.floor(share * CIVIDIS.length)))] ?? "#7d7c78";
}
