/** Plays events one after the other, or steps through them; the address has the one that is shown. */
import { useEffect, useLayoutEffect, useRef } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { nextEvent } from "../lib/rungs.js";
import { setQuery } from "./router.js";

/** @import { RungEvent } from "../lib/rungs.js" */

/** Whether the visitor wants nothing to move. */
export function prefersReducedMotion() {
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
 * @param {RungEvent[]} events
 * @param {number} speed
 * @returns {PlayerState}
 */
export function usePlayer(written, events, speed) {
    const current = useSignal(written);
    const playing = useSignal(false);
    const latest = useRef({ events, speed });
    latest.current = { events, speed };
    useEffect(() => {
        if (!playing.peek()) current.value = written;
    }, [written]);
    const keep = (/** @type {number} */ at) => {
        current.value = at;
        setQuery({ at: String(at) }, { replace: true });
    };
    const pause = () => {
        playing.value = false;
        keep(current.peek());
    };
    const step = (/** @type {1 | -1} */ direction, /** @type {boolean} */ stops) => {
        const next = nextEvent(
            latest.current.events,
            current.peek(),
            direction,
            event => !stops || event.decision === "stopped" || event.decision === "paused",
        );
        playing.value = false;
        keep(next ?? (direction < 0 && !stops ? 0 : current.peek()));
    };
    const play = () => {
        if (prefersReducedMotion()) step(1, true);
        else if (playing.peek()) pause();
        else {
            const last = latest.current.events.at(-1)?.number ?? 0;
            if (current.peek() >= last) current.value = 0;
            playing.value = true;
        }
    };
    useEffect(() => {
        if (!playing.value) return undefined;
        let before = performance.now();
        let pending = 0;
        let frame = 0;
        const tick = (/** @type {number} */ now) => {
            pending += (Math.max(0, now - before) / 1000) * latest.current.speed;
            before = now;
            const { events: list } = latest.current;
            let index = list.findLastIndex(event => event.number <= current.peek());
            const steps = Math.floor(pending);
            pending -= steps;
            index = Math.min(index + steps, list.length - 1);
            if (steps && index >= 0) current.value = list[index]?.number ?? 0;
            if (index >= list.length - 1) pause();
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
        at: current.value,
        playing: playing.value,
        speed,
        show: at => {
            playing.value = false;
            current.value = at;
        },
        keep,
        play,
        step,
    };
}
