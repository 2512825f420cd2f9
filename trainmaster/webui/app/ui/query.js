/** Hooks that load what a component shows: data of the API, and modules that are fetched on demand. */
import { useEffect, useMemo, useRef } from "../../vendor/preact/hooks.js";
import { batch, useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { subscribe } from "../api/live.js";
import { visible } from "../lib/format.js";
import { toastError } from "./overlay.js";
import { loadModule } from "./router.js";
import { component, tags } from "./tags.js";

const { button, div, h1, p } = tags;

/**
 * @template T
 * @typedef {object} Query
 * @property {T | null} data null until it is loaded; the last data while other data is loading
 * @property {string} error empty without one
 * @property {() => Promise<void>} refetch
 */
/**
 * @template T
 * @typedef {object} QueryOptions
 * @property {string} [topic] a topic of `api/live.js`: the data is refreshed when it changes
 * @property {(data: T) => Promise<T>} [refresh] loads only what is new; default: all of it
 */

/**
 * Load data when a component appears and whenever `key` changes. An answer that a later request has overtaken is dropped.
 * @template T
 * @param {string} key says which data it is
 * @param {(() => Promise<T>) | null} load null: nothing is loaded
 * @param {QueryOptions<T>} [options]
 * @returns {Query<T>}
 */
export function useLoad(key, load, options = {}) {
    const data = useSignal(/** @type {T | null} */ (null));
    const error = useSignal("");
    const latest = useRef({ load, ...options });
    latest.current = { load, ...options };
    const { refetch, update } = useMemo(() => {
        let requests = 0;
        let pending = false;
        let outdated = false; // the topic has changed while a request was pending
        /** @param {(() => Promise<T>) | null} request */
        const run = async request => {
            if (!request) return;
            requests += 1;
            const number = requests;
            pending = true;
            try {
                const answer = await request();
                if (number !== requests) return;
                batch(() => {
                    data.value = answer;
                    error.value = "";
                });
            } catch (failure) {
                if (number === requests) error.value = failure instanceof Error ? failure.message : String(failure);
            } finally {
                if (number === requests) {
                    pending = false;
                    if (outdated) void update();
                }
            }
        };
        const refetch = () => run(latest.current.load);
        /** @returns {Promise<void>} */
        const update = async () => {
            const { refresh } = latest.current;
            const before = data.peek();
            outdated = pending;
            if (pending) return undefined;
            return refresh && before ? run(() => refresh(before)) : refetch();
        };
        return { refetch, update };
    }, []);
    useEffect(() => {
        void refetch();
    }, [key]);
    const { topic } = options;
    useEffect(() => {
        if (!topic) return undefined;
        let begun = false;
        return subscribe(topic, () => {
            if (begun) return update();
            // The first notification comes at once: the same request again, which the master answers with 304.
            begun = true;
            return refetch();
        });
    }, [topic]);
    return { data: data.value, error: error.value, refetch };
}

/**
 * Load the answer of an API call; see `useLoad`.
 * @template T
 * @param {string} address empty: there is no call
 * @param {QueryOptions<T>} [options]
 * @returns {Query<T>}
 */
export function useQuery(address, options = {}) {
    return useLoad(address, address ? () => get(address) : null, options);
}

/**
 * Return a module that is loaded on demand, null until it is there.
 * @template T
 * @param {string} name another name loads another module
 * @param {(() => Promise<T>) | undefined} load
 * @returns {T | null}
 */
export function useModule(name, load) {
    const loaded = useSignal(/** @type {{ name: string, module: T } | null} */ (null));
    useEffect(() => {
        let mounted = true;
        if (load)
            loadModule(load).then(module => {
                if (mounted) loaded.value = { name, module };
            }, toastError);
        return () => {
            mounted = false;
        };
    }, [name]);
    return loaded.value?.name === name ? loaded.value.module : null;
}

/** Replaces a page whose data could not be loaded. */
export const LoadError = component((/** @type {{ error: string, retry: () => unknown }} */ { error, retry }) =>
    div(
        { class: "page", role: "alert" },
        h1(null, "Could not load this page"),
        p(null, visible(error, 1000)),
        button({ type: "button", onClick: retry }, "Try again"),
    ),
);

/** Replaces a part of a page whose data could not be loaded. */
export const PartError = component((/** @type {{ error: string }} */ { error }) =>
    div({ class: "empty", role: "alert" }, p(null, visible(error, 500))),
);
