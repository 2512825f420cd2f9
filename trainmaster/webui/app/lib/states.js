/** The states of experiments and trials: their words, and the shapes and colours that go with them. */

/**
 * @typedef {"running" | "waiting" | "paused" | "completed" | "failed" | "over" | "stopping"} Look
 * @typedef {{ word: string, look: Look }} StateLook
 */

/** @type {Record<string, StateLook>} */
const KNOWN = {
    ACTIVE: { word: "active", look: "running" },
    RUNNING: { word: "running", look: "running" },
    STARTING: { word: "starting", look: "running" },
    PULLING: { word: "pulling", look: "waiting" },
    QUEUED: { word: "waiting", look: "waiting" },
    PAUSED: { word: "paused", look: "paused" },
    PAUSED_BY_SEARCH: { word: "paused by the search", look: "waiting" },
    COMPLETED: { word: "completed", look: "completed" },
    STOPPED: { word: "stopped early", look: "over" },
    CANCELED: { word: "canceled", look: "over" },
    ERROR: { word: "failed", look: "failed" },
    DELETING: { word: "deleting", look: "stopping" },
    DELETE_FAILED: { word: "delete failed", look: "failed" },
    DELETED: { word: "deleted", look: "over" },
};

/**
 * @param {string} state with or without `STATE_`; a word that this page does not know is shown as it is
 * @returns {StateLook}
 */
export function stateLook(state) {
    const bare = state.replace(/^STATE_/, "");
    if (bare.startsWith("STOPPING")) return { word: "stopping", look: "stopping" };
    return KNOWN[bare] ?? { word: bare.toLowerCase().replaceAll("_", " "), look: "over" };
}

/** Paths in a square of 12, drawn with lines. */
export const SHAPES = /** @type {Record<Look, string>} */ ({
    running: "M3.5 2.2 9.6 6 3.5 9.8Z",
    waiting: "M6 1.5a4.5 4.5 0 1 0 .01 0M6 3.4V6l1.9 1.3",
    paused: "M4 2.5v7M8 2.5v7",
    completed: "M2 6.4 4.8 9.2 10 3",
    failed: "M2.8 2.8l6.4 6.4M9.2 2.8 2.8 9.2",
    over: "M6 1.5a4.5 4.5 0 1 0 .01 0M3 9 9 3",
    stopping: "M3 3h6v6H3Z",
});

const ENDED = new Set(["COMPLETED", "CANCELED", "ERROR", "DELETED", "DELETING", "DELETE_FAILED"]);

/** Whether a state is final. @param {string} state */
export function hasEnded(state) {
    return ENDED.has(state);
}
