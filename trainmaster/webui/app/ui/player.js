/** Plays events one after the other, or steps through them; the address has the one that is shown. */
import { useEffect, useLayoutEffect, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { nextEvent } from "../lib/rungs.js";
import { setQuery } from "./router.js";

/** @import { RungEvent } from "../lib/rungs.js" */

/** Whether the visitor wants nothing to move. */
export function stillPlease() {
    return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * @typedef {object} PlayerState
 * @property {number} at number of the event that has happened last
 * @property {boolean} playing
 * @property {number} speed events a second
 * @property {(at: number) => void} show shows a moment, without a new address
 * @property {(at: number) => void} keep the same, and puts it into the address
 * @property {() => void} play begins or pauses; steps to the next stop where the visitor wants no motion
 * @property {(way: 1 | -1, stops: boolean) => void} step
 */

/**
 * @param {number} written what the address says
 * @param {RungEvent[]} mine
 * @param {number} speed
 * @returns {PlayerState}
 */
export function usePlayer(written, mine, speed) {
    const shown = useSignal(written);
    const playing = useSignal(false);
    const latest = useRef({ mine, speed });
    latest.current = { mine, speed };
    useEffect(() => {
        if (!playing.peek()) shown.value = written;
    }, [written]);
    const keep = (/** @type {number} */ at) => {
        shown.value = at;
        setQuery({ at: String(at) }, { replace: true });
    };
    const pause = () => {
        playing.value = false;
        keep(shown.peek());
    };
    const step = (/** @type {1 | -1} */ way, /** @type {boolean} */ stops) => {
        const next = nextEvent(latest.current.mine, shown.peek(), way, one => !stops || one.decision === "stopped");
        playing.value = false;
        keep(next ?? (way < 0 && !stops ? 0 : shown.peek()));
    };
    const play = () => {
        if (stillPlease()) step(1, true);
        else if (playing.peek()) pause();
        else {
            const last = latest.current.mine.at(-1)?.number ?? 0;
            if (shown.peek() >= last) shown.value = 0;
            playing.value = true;
        }
    };
    useEffect(() => {
        if (!playing.value) return undefined;
        let before = performance.now();
        let due = 0;
        let frame = 0;
        const tick = (/** @type {number} */ now) => {
            due += (Math.max(0, now - before) / 1000) * latest.current.speed;
            before = now;
            const { mine: list } = latest.current;
            let place = list.findLastIndex(one => one.number <= shown.peek());
            const many = Math.floor(due);
            due -= many;
            place = Math.min(place + many, list.length - 1);
            if (many && place >= 0) shown.value = list[place]?.number ?? 0;
            if (place >= list.length - 1) pause();
            else frame = requestAnimationFrame(tick);
        };
        frame = requestAnimationFrame(tick);
        return () => cancelAnimationFrame(frame);
    }, [playing.value]);
    useLayoutEffect(() => {
        // At once: who sees the drawing may press a key.
        const pressed = (/** @type {KeyboardEvent} */ event) => {
            const on = event.target instanceof Element ? event.target : null;
            if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
            if (on?.closest("input, select, textarea, button, a, [role=grid], [role=menu]")) return;
            if (event.key === " ") play();
            else if (event.key === "ArrowRight") step(1, event.shiftKey);
            else if (event.key === "ArrowLeft") step(-1, event.shiftKey);
            else return;
            event.preventDefault();
        };
        document.addEventListener("keydown", pressed);
        return () => document.removeEventListener("keydown", pressed);
    }, []);
    return {
        at: shown.value,
        playing: playing.value,
        speed,
        show: at => {
            playing.value = false;
            shown.value = at;
        },
        keep,
        play,
        step,
    };
}
