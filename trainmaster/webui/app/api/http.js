/**
 * Calls of the master's API. The page never sees a token: the browser sends the session's cookie, and what changes
 * something carries a header that no other site can send.
 */
import { outage, reconnects, sessionEnded } from "./state.js";

/** @import { Outage } from "./state.js" */

/** The master's root, whatever prefix a proxy has put before it. */
export const ROOT = new URL("../", document.baseURI);

const RETRY_INTERVAL = 3000; // ms between two checks whether the master is back

/** A failed call, with the API's own message. `status` 0: there was no answer. */
export class ApiError extends Error {
    /**
     * @param {number} status
     * @param {string} sentence
     * @param {number} [seconds] after which a retry may succeed
     */
    constructor(status, sentence, seconds = 0) {
        super(sentence);
        this.name = "ApiError";
        this.status = status;
        this.seconds = seconds;
    }
}

/**
 * @template T
 * @param {string} path from the master's root on, as `api/v1/me`
 * @param {{ signal?: AbortSignal }} [options]
 * @returns {Promise<T>}
 */
export function get(path, options = {}) {
    // Nothing but the address: the browser then takes the answer that the shell has asked for already.
    return call(path, options);
}

/**
 * @template T
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<T>}
 */
export function send(method, path, body) {
    const headers = { "Content-Type": "application/json", "X-Trainmaster": "page" };
    return call(path, { method, headers, body: JSON.stringify(body ?? {}) });
}

/**
 * @param {string} path
 * @param {RequestInit} options
 * @returns {Promise<any>}
 */
async function call(path, options) {
    let answer;
    try {
        answer = await fetch(new URL(path, ROOT), { credentials: "same-origin", ...options });
    } catch (error) {
        if (options.signal?.aborted) throw error;
        reportOutage("master");
        throw new ApiError(0, "The master does not answer.");
    }
    if (answer.status === 502 || answer.status === 504) {
        reportOutage("master"); // a proxy reports the same
        throw new ApiError(0, "The master does not answer.");
    }
    const kind = answer.headers.get("content-type") ?? "";
    const body = kind.startsWith("application/json") ? await answer.json() : null;
    if (answer.ok) return body;
    if (answer.status === 503) void checkDatabase();
    if (answer.status === 401 && path !== "session") sessionEnded.value = true;
    const sentence = body?.error?.error ?? body?.message ?? `The master answered ${answer.status}.`;
    throw new ApiError(answer.status, String(sentence), Number(answer.headers.get("retry-after")) || 0);
}

let checkingDatabase = false;

/** Report an outage if a call was refused for want of the database, and not of another system. */
async function checkDatabase() {
    if (checkingDatabase) return;
    checkingDatabase = true;
    if (!(await isReachable())) reportOutage("database");
    checkingDatabase = false;
}

/** Whether master and database answer: the session cannot be read without either. */
async function isReachable() {
    try {
        return (await fetch(new URL("session", ROOT), { credentials: "same-origin" })).ok;
    } catch {
        return false;
    }
}

/** @param {Outage["service"]} service */
function reportOutage(service) {
    const before = outage.value;
    if (before?.service === service) return;
    outage.value = { service, since: before?.since ?? Date.now() };
    if (before) return;
    const retry = async () => {
        if (!(await isReachable())) return void setTimeout(retry, RETRY_INTERVAL);
        outage.value = null;
        reconnects.value += 1;
    };
    setTimeout(retry, RETRY_INTERVAL);
}
