/**
 * Live updates: one WebSocket a tab, over which the master names the topics that have changed. Where there is none, as
 * behind an old proxy, every topic counts as changed every few seconds.
 *
 * A notification is a hint: its subscriber refetches through the normal endpoints. A new connection notifies of every
 * topic, so that no change is missed while there was none.
 */
import { initialState, reduce } from "../lib/live_state.js";
import { ApiError, ROOT, send } from "./http.js";
import { freshness, outage, reconnects, sessionEnded } from "./state.js";

/** @import { LiveEffect, LiveEvent, TimerName } from "../lib/live_state.js" */
/** @typedef {() => unknown} OnChange */
/** @typedef {{ onChange: OnChange, busy: boolean, outdated: boolean }} Subscriber */
/** @typedef {LiveEvent extends infer E ? E extends LiveEvent ? Omit<E, "now" | "random"> : never : never} Occurrence */

export class LiveConnection {
    constructor() {
        this.state = initialState(Date.now(), document.hidden);
        /** @type {Map<string, Set<Subscriber>>} */
        this.topics = new Map();
        /** @type {WebSocket | null} */
        this.socket = null;
        this.ticket = "";
        /** @type {Map<TimerName, ReturnType<typeof setTimeout>>} */
        this.timers = new Map();
    }

    /** Listen to the page and to the master's outages. */
    start() {
        document.addEventListener("visibilitychange", () => {
            this.dispatch({ type: "visibility", hidden: document.hidden });
        });
        const available = () => {
            this.dispatch({ type: "availability", available: outage.value === null && !sessionEnded.value });
        };
        outage.subscribe(available);
        sessionEnded.subscribe(available);
        reconnects.subscribe(times => {
            if (times > 0) this.dispatch({ type: "reconnect" });
        });
    }

    /**
     * Call `onChange` when something of a topic may have changed. While the promise that it returns is pending it is not
     * called again, and then once more if there were changes.
     * @param {string} topic `mine`, `list`, `experiment:5`, `trial:7` or `log:TASK`
     * @param {OnChange} onChange
     * @returns {() => void} unsubscribes
     */
    subscribe(topic, onChange) {
        const subscribers = this.topics.get(topic) ?? new Set();
        const subscriber = { onChange, busy: false, outdated: false };
        subscribers.add(subscriber);
        this.topics.set(topic, subscribers);
        this.dispatch({ type: "topics", count: this.topics.size });
        return () => {
            subscriber.outdated = false;
            subscribers.delete(subscriber);
            if (subscribers.size === 0 && this.topics.get(topic) === subscribers) this.topics.delete(topic);
            this.dispatch({ type: "topics", count: this.topics.size });
        };
    }

    /** @param {Occurrence} event */
    dispatch(event) {
        const { state, effects } = reduce(
            this.state,
            /** @type {LiveEvent} */ ({ ...event, now: Date.now(), random: Math.random() }),
        );
        this.state = state;
        for (const effect of effects) this.perform(effect);
    }

    /** @param {LiveEffect} effect */
    perform(effect) {
        if (effect.type === "fetchTicket") void this.fetchTicket();
        else if (effect.type === "open") this.open();
        else if (effect.type === "close") this.close();
        else if (effect.type === "sendTopics") this.send({});
        else if (effect.type === "sendTicket") this.send({ ticket: this.ticket });
        else if (effect.type === "notify") this.notify(effect.topic);
        else if (effect.type === "notifyAll") for (const topic of this.topics.keys()) this.notify(topic);
        else if (effect.type === "start") this.startTimer(effect.name, effect.delay);
        else if (effect.type === "stop") clearTimeout(this.timers.get(effect.name));
        else if (effect.type === "unknownFreshness") freshness.value = null;
        else if (freshness.value?.mode !== effect.mode) freshness.value = { mode: effect.mode, since: effect.since };
    }

    /** @param {TimerName} name @param {number} delay */
    startTimer(name, delay) {
        clearTimeout(this.timers.get(name));
        const timer = setTimeout(() => this.dispatch({ type: "timer", name }), delay);
        this.timers.set(name, timer);
    }

    // -- the socket ---------------------------------------------------------------------------------------------------

    async fetchTicket() {
        try {
            this.ticket = (await send("POST", "api/x1/tickets", { purpose: "live" })).ticket;
        } catch (error) {
            const status = error instanceof ApiError ? error.status : 0;
            this.dispatch({ type: "refused", unsupported: [400, 404, 422].includes(status) }); // by an older master
            return;
        }
        this.dispatch({ type: "ticket" });
    }

    open() {
        const address = new URL("api/x1/live", ROOT);
        address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
        const socket = new WebSocket(address);
        this.socket = socket;
        socket.onopen = () => this.dispatch({ type: "ready" });
        socket.onmessage = event => this.dispatch({ type: "message", topic: JSON.parse(event.data).topic ?? "" });
        socket.onclose = () => this.dispatch({ type: "closed" });
    }

    close() {
        const { socket } = this;
        this.socket = null;
        if (!socket) return;
        socket.onclose = socket.onmessage = socket.onopen = null;
        socket.close();
    }

    /** @param {{ ticket?: string | undefined }} message beside the topics */
    send(message) {
        if (this.socket?.readyState !== WebSocket.OPEN) return;
        this.socket.send(JSON.stringify({ ...message, follow: [...this.topics.keys()] }));
    }

    // -- subscribers --------------------------------------------------------------------------------------------------

    /** @param {string} topic */
    notify(topic) {
        for (const subscriber of this.topics.get(topic) ?? []) void call(subscriber);
    }
}

/** @param {Subscriber} subscriber */
async function call(subscriber) {
    if (subscriber.busy) {
        subscriber.outdated = true;
        return;
    }
    subscriber.busy = true;
    try {
        await subscriber.onChange();
    } catch {
        // The subscriber shows its own error.
    }
    subscriber.busy = false;
    if (subscriber.outdated) {
        subscriber.outdated = false;
        void call(subscriber);
    }
}

const connection = new LiveConnection();
connection.start();

/** @type {LiveConnection["subscribe"]} */
export const subscribe = (topic, onChange) => connection.subscribe(topic, onChange);
