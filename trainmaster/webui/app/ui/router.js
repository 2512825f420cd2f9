/**
 * Every state of the page is its address. Addresses are relative to `/ui/`, under whatever prefix a proxy puts it;
 * links are ordinary ones, which work in a new tab too.
 */
import { computed, signal } from "../../vendor/signals/signals.js";

/**
 * @typedef {object} Route a kind of address; the list is routes.json, which the master reads as well
 * @property {string} path words, and params with a colon for what varies
 * @property {string} page its module in `pages/`
 * @property {string} [tab] the first of its views, whose modules are called PAGE_VIEW
 * @property {string} [data] the page's one API call
 * @property {string[]} [query] parameters of the page's address that are the call's too
 * @property {Record<string, string>} [fixed] the call's further parameters
 * @property {string[]} [needs] without any of these parameters there is no call
 */
/**
 * @typedef {object} PageLocation
 * @property {Route | null} route
 * @property {Record<string, string>} params values of the route's parameters; without a view, the first one
 * @property {URLSearchParams} query
 * @property {string} path from `/ui/` on
 * @property {string} resourceKey the params that the route requires: of which thing the page is
 */

/** The folder `/ui/`. */
export const BASE = new URL("./", document.baseURI);

/** @type {Route[]} */
const routes = JSON.parse(document.getElementById("routes")?.textContent ?? "[]");

/** The modules of all pages, for what is fetched while the browser is idle. */
export function pageModules() {
    return [...new Set(routes.map(route => route.page))];
}

/**
 * Loads a module. After an upgrade of the master the files of this version are gone: once, the page loads itself anew.
 * @template T
 * @param {() => Promise<T>} load with the `import()`
 * @returns {Promise<T>}
 */
export async function loadModule(load) {
    try {
        return await load();
    } catch (error) {
        const mark = `reloaded ${import.meta.url}`;
        if (sessionStorage.getItem(mark)) throw error;
        sessionStorage.setItem(mark, "yes");
        window.location.reload();
        return new Promise(() => undefined);
    }
}

/** @param {URL} url */
function parseLocation(url) {
    const path = url.pathname.slice(BASE.pathname.length);
    const parts = path.split("/").filter(Boolean).map(decodeSegment);
    for (const route of routes) {
        const params = matchRoute(route, parts);
        if (!params) continue;
        if (route.tab) params.tab ??= route.tab;
        return { route, params: params, query: url.searchParams, path, resourceKey: resourceKeyOf(route, params) };
    }
    return { route: null, params: {}, query: url.searchParams, path, resourceKey: path };
}

/** @param {Route} route @param {Record<string, string>} params */
function resourceKeyOf(route, params) {
    const required = route.path.split("/").filter(part => part.startsWith(":") && !part.endsWith("?"));
    return required.map(part => params[part.slice(1)]).join("/");
}

/** @param {string} text */
function decodeSegment(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text; // a lone percent sign
    }
}

/**
 * @param {Route} route
 * @param {string[]} parts
 */
function matchRoute(route, parts) {
    const segments = route.path.split("/").filter(Boolean);
    if (parts.length > segments.length) return null;
    /** @type {Record<string, string>} */
    const params = {};
    for (const [i, part] of segments.entries()) {
        const segment = parts[i];
        if (segment === undefined) {
            if (!part.endsWith("?")) return null;
        } else if (part.startsWith(":")) {
            params[part.slice(1).replace(/\?$/, "")] = segment;
        } else if (part !== segment) {
            return null;
        }
    }
    return params;
}

/** Where the page is. */
export const location = signal(/** @type {PageLocation} */ (parseLocation(new URL(window.location.href))));
/** The page's words of the address bar's last part, as `experiment 5`; pages set it. */
export const title = signal("");
/**
 * The address of the page's one API call; the master makes the same one for the shell, so that data travel with the code.
 */
export const dataAddress = computed(() => dataAddressOf(location.value));

/**
 * @param {PageLocation} at
 * @param {Record<string, string>} [extra] further parameters
 */
export function dataAddressOf(at, extra = {}) {
    const { route, params, query } = at;
    if (!route?.data || (route.needs && !route.needs.some(name => query.get(name)))) return "";
    const path = route.data
        .split("/")
        .map(part => (part.startsWith(":") ? encodeURIComponent(params[part.slice(1)] ?? "") : part))
        .join("/");
    /** @type {Record<string, string>} */
    const parameters = {};
    for (const name of route.query ?? []) {
        const value = query.get(name);
        if (value) parameters[name] = value;
    }
    const words = Object.entries({ ...parameters, ...route.fixed, ...extra }).map(
        ([k, v]) => `${k}=${encodeURIComponent(v)}`,
    );
    return path + (words.length ? "?" : "") + words.join("&");
}

/**
 * The address of a page, for `href`.
 * @param {string} path from `/ui/` on, as `experiments/5`
 * @param {Record<string, string | null | undefined>} [query] empty ones are left out
 */
export function href(path, query = {}) {
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value) words.set(name, value);
    const text = words.toString();
    return BASE.pathname + path + (text ? `?${text}` : "");
}

/**
 * Goes to an address. `replace`: without a step in the browser's history, as for what is being typed.
 * @param {string} address
 * @param {{ replace?: boolean }} [how]
 */
export function navigate(address, { replace = false } = {}) {
    const url = new URL(address, BASE);
    if (replace) history.replaceState(history.state, "", url);
    else if (url.href !== window.location.href) history.pushState(null, "", url);
    location.value = parseLocation(url);
}

/**
 * Changes parameters of the present address; null removes one.
 * @param {Record<string, string | null>} changes
 * @param {{ replace?: boolean }} [how]
 */
export function setQuery(changes, how = {}) {
    const query = Object.fromEntries(location.value.query);
    navigate(href(location.value.path, { ...query, ...changes }), how);
}

/** Follows links to the page's own addresses without loading it again. */
export function interceptLinks() {
    addEventListener("popstate", () => {
        location.value = parseLocation(new URL(window.location.href));
    });
    document.addEventListener("click", event => {
        if (event.defaultPrevented || event.button !== 0) return;
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        const link = event.target instanceof Element ? event.target.closest("a") : null;
        if (!link?.href || link.target || link.hasAttribute("download")) return;
        const url = new URL(link.href);
        const files = `${BASE.pathname}a/`;
        if (url.origin !== BASE.origin || !url.pathname.startsWith(BASE.pathname) || url.pathname.startsWith(files))
            return;
        event.preventDefault();
        navigate(url.href);
        scrollTo(0, 0);
    });
}
