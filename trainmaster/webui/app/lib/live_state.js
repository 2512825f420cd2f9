/**
 * State machine of the live connection: `reduce(state, event)` returns the next state and the effects to carry out. It
 * knows no socket, timer or clock, so that every order of events can be tested; `api/live.js` carries out the effects.
 */

/** @typedef {"send" | "retry" | "poll" | "silence" | "hidden"} TimerName */
/**
 * @typedef {object} LiveState
 * @property {"closed" | "ticket" | "connecting" | "open"} connection `ticket`: one is being fetched; `connecting`: the
 *   socket has brought no message yet
 * @property {boolean} ready whether the socket takes messages
 * @property {number} topics how many the page subscribes to
 * @property {number} attempts to connect since the last open connection
 * @property {number} failures connections in a row that never opened
 * @property {number | null} hiddenSince milliseconds, as all times here; null while the page is visible
 * @property {boolean} available whether the master answers and the session lasts
 * @property {number} confirmedAt when the data on the page was known to be current
 * @property {number} polledAt
 * @property {number} sentAt when topics were sent last
 * @property {boolean} sending whether the timer `send` runs
 * @property {boolean} polling whether the timer `poll` runs
 */
/**
 * @typedef {(
 *   | { type: "topics", count: number }
 *   | { type: "ticket" }
 *   | { type: "refused", unsupported: boolean }
 *   | { type: "ready" }
 *   | { type: "message", topic: string }
 *   | { type: "closed" }
 *   | { type: "timer", name: TimerName }
 *   | { type: "visibility", hidden: boolean }
 *   | { type: "availability", available: boolean }
 *   | { type: "reconnect" }
 * ) & { now: number, random: number }} LiveEvent `random`: from 0 to 1, spreads reconnects of many pages
 */
/**
 * @typedef {(
 *   | { type: "fetchTicket" }
 *   | { type: "open" }
 *   | { type: "close" }
 *   | { type: "sendTicket" }
 *   | { type: "sendTopics" }
 *   | { type: "notify", topic: string }
 *   | { type: "notifyAll" }
 *   | { type: "freshness", mode: "live" | "polling" | "stale", since: number }
 *   | { type: "unknownFreshness" }
 *   | { type: "start", name: TimerName, delay: number }
 *   | { type: "stop", name: TimerName }
 * )} LiveEffect
 */
/** @typedef {{ state: LiveState, effects: LiveEffect[], now: number, random: number }} Step */

export const POLL_INTERVAL = 5000; // ms between two polls without a connection
const POLL_INTERVAL_HIDDEN = 30_000;
const HIDDEN_TIMEOUT = 60_000; // ms after which a hidden page closes its connection
const OPEN_TIMEOUT = 10_000;
const SILENCE_TIMEOUT = 45_000; // ms without a message until the connection counts as lost; the master sends every 20 s
const MIN_RETRY = 500; // ms until the next attempt ...
const MAX_RETRY = 30_000; // ... after a connection was lost
const UNSUPPORTED_RETRY = 300_000; // ms until the next attempt where no connection has ever opened
const SEND_INTERVAL = 400; // ms between two messages

/** @param {number} now @param {boolean} hidden @returns {LiveState} */
export function initialState(now, hidden) {
    return {
        connection: "closed",
        ready: false,
        topics: 0,
        attempts: 0,
        failures: 0,
        hiddenSince: hidden ? now : null,
        available: true,
        confirmedAt: now,
        polledAt: now,
        sentAt: 0,
        sending: false,
        polling: false,
    };
}

/**
 * Return the state after an event, and what to do.
 * @param {LiveState} state
 * @param {LiveEvent} event
 * @returns {{ state: LiveState, effects: LiveEffect[] }}
 */
export function reduce(state, event) {
    /** @type {Step} */
    const step = { state: { ...state }, effects: [], now: event.now, random: event.random };
    const next = step.state;
    switch (event.type) {
        case "topics":
            next.topics = event.count;
            if (event.count === 0) step.effects.push({ type: "unknownFreshness" });
            else if (next.connection === "open") showFreshness(step);
            // A little later, and once for all changes of the page.
            if (!next.sending) start(step, "send", Math.max(0, next.sentAt + SEND_INTERVAL - step.now));
            break;
        case "ticket":
            next.connection = "connecting";
            step.effects.push({ type: "open" });
            start(step, "silence", OPEN_TIMEOUT);
            break;
        case "refused":
            next.connection = "closed";
            if (event.unsupported) next.failures += 1;
            scheduleRetry(step);
            break;
        case "ready":
            next.ready = true;
            next.sentAt = step.now;
            step.effects.push({ type: "sendTicket" });
            break;
        case "message":
            next.connection = "open";
            next.attempts = next.failures = 0;
            next.confirmedAt = step.now;
            stop(step, "poll");
            start(step, "silence", SILENCE_TIMEOUT);
            showFreshness(step);
            if (event.topic) step.effects.push({ type: "notify", topic: event.topic });
            break;
        case "closed":
            drop(step);
            break;
        case "timer":
            onTimer(step, event.name);
            break;
        case "visibility":
            onVisibility(step, event.hidden);
            break;
        case "availability":
            next.available = event.available;
            showFreshness(step);
            break;
        case "reconnect":
            next.attempts = 0;
            // Where it never opened nothing else would tell; a connection that begins notifies of every topic.
            if (next.connection === "open" || next.failures > 0) step.effects.push({ type: "notifyAll" });
            if (next.connection !== "open") connect(step);
            showFreshness(step);
            break;
    }
    return { state: next, effects: step.effects };
}

/** @param {Step} step @param {TimerName} name */
function onTimer(step, name) {
    const { state } = step;
    if (name === "send") {
        state.sending = false;
        // The first message of a connection that is still opening has the topics; behind one that closes comes another.
        if (state.ready) {
            state.sentAt = step.now;
            step.effects.push({ type: "sendTopics" });
        } else connect(step);
    } else if (name === "retry") connect(step);
    else if (name === "silence") drop(step);
    else if (name === "hidden") {
        if (isSuspended(step)) drop(step);
    } else {
        state.polling = false;
        if (state.connection === "open" || state.topics === 0 || isSuspended(step)) return;
        if (state.available) {
            state.confirmedAt = state.polledAt; // the answers to the last poll are there
            state.polledAt = step.now;
            step.effects.push({ type: "notifyAll" });
        }
        showFreshness(step);
        startPolling(step);
    }
}

/** @param {Step} step @param {boolean} hidden */
function onVisibility(step, hidden) {
    const { state } = step;
    state.hiddenSince = hidden ? (state.hiddenSince ?? step.now) : null;
    if (hidden) {
        start(step, "hidden", HIDDEN_TIMEOUT);
        return;
    }
    stop(step, "hidden");
    state.attempts = 0;
    if (state.connection === "open") return;
    stop(step, "poll");
    if (state.failures > 0) step.effects.push({ type: "notifyAll" });
    scheduleRetry(step);
    connect(step);
}

/** @param {Step} step */
function connect(step) {
    if (step.state.connection !== "closed" || step.state.topics === 0 || isSuspended(step)) return;
    step.state.connection = "ticket";
    stop(step, "retry");
    step.effects.push({ type: "fetchTicket" });
}

/** Give up the present connection. @param {Step} step */
function drop(step) {
    const { state } = step;
    if (state.connection !== "connecting" && state.connection !== "open") return;
    if (state.connection === "connecting") state.failures += 1;
    state.connection = "closed";
    state.ready = false;
    step.effects.push({ type: "close" });
    stop(step, "silence");
    scheduleRetry(step);
}

/** Poll meanwhile, and connect again after a while. @param {Step} step */
function scheduleRetry(step) {
    const { state } = step;
    showFreshness(step);
    if (state.topics === 0 || isSuspended(step)) return;
    state.attempts += 1;
    const backoff = Math.min(MAX_RETRY, MIN_RETRY * 2 ** (state.attempts - 1)) * (0.5 + step.random);
    start(step, "retry", state.failures > 1 ? UNSUPPORTED_RETRY : backoff);
    if (!state.polling) startPolling(step);
}

/** @param {Step} step */
function startPolling(step) {
    start(step, "poll", step.state.hiddenSince === null ? POLL_INTERVAL : POLL_INTERVAL_HIDDEN);
}

/** Whether the page has been hidden for a while; one that never had a connection continues to poll. @param {Step} step */
function isSuspended({ state, now }) {
    return state.hiddenSince !== null && now - state.hiddenSince >= HIDDEN_TIMEOUT && state.failures === 0;
}

/** @param {Step} step */
function showFreshness({ state, effects }) {
    if (state.topics === 0) return;
    const mode = !state.available ? "stale" : state.connection === "open" ? "live" : "polling";
    effects.push({ type: "freshness", mode, since: state.confirmedAt });
}

/** @param {Step} step @param {TimerName} name @param {number} delay */
function start(step, name, delay) {
    step.effects.push({ type: "start", name, delay });
    if (name === "send") step.state.sending = true;
    if (name === "poll") step.state.polling = true;
}

/** @param {Step} step @param {TimerName} name */
function stop(step, name) {
    step.effects.push({ type: "stop", name });
    if (name === "poll") step.state.polling = false;
}
