/** What can be done to many experiments at once, and to which of them it does not apply: for a preview before it. */
import { hasEnded } from "./states.js";

/**
 * @typedef {object} Subject what of an experiment decides it
 * @property {number} id
 * @property {string} state
 * @property {boolean} archived
 * @property {boolean} editable whether the user may change it
 */
/**
 * @typedef {object} Action
 * @property {string} name of the API's endpoint
 * @property {string} text
 * @property {string} permission
 * @property {boolean} [dangerous] it cannot be undone
 * @property {"POST" | "DELETE"} method
 * @property {(subject: Subject) => string} skips why it does not apply; empty where it does
 */

/** @param {Subject} subject */
const whileRunning = subject =>
    hasEnded(subject.state) ? "have ended" : subject.state.startsWith("STOPPING") ? "are stopping" : "";
/** @param {Subject} subject */
const onceEnded = subject => (hasEnded(subject.state) ? "" : "have not ended");

/** @type {Action[]} */
export const ACTIONS = [
    {
        name: "activate",
        text: "Activate",
        permission: "UPDATE_EXPERIMENT",
        method: "POST",
        skips: subject => (subject.state === "PAUSED" ? "" : "are not paused"),
    },
    {
        name: "pause",
        text: "Pause",
        permission: "UPDATE_EXPERIMENT",
        method: "POST",
        skips: subject => whileRunning(subject) || (subject.state === "PAUSED" ? "are paused already" : ""),
    },
    { name: "cancel", text: "Cancel", permission: "UPDATE_EXPERIMENT", method: "POST", skips: whileRunning },
    {
        name: "kill",
        text: "Kill",
        permission: "UPDATE_EXPERIMENT",
        method: "POST",
        dangerous: true,
        skips: subject => (hasEnded(subject.state) ? "have ended" : ""),
    },
    {
        name: "archive",
        text: "Archive",
        permission: "UPDATE_EXPERIMENT_METADATA",
        method: "POST",
        skips: subject => onceEnded(subject) || (subject.archived ? "are archived already" : ""),
    },
    {
        name: "unarchive",
        text: "Unarchive",
        permission: "UPDATE_EXPERIMENT_METADATA",
        method: "POST",
        skips: subject => (subject.archived ? "" : "are not archived"),
    },
    {
        name: "delete",
        text: "Delete",
        permission: "DELETE_EXPERIMENT",
        method: "DELETE",
        dangerous: true,
        skips: onceEnded,
    },
];

/**
 * What an action would do: the ids that it applies to, and how many it skips for which reason.
 * @param {Action} action
 * @param {Iterable<Subject>} subjects
 */
export function preview(action, subjects) {
    /** @type {number[]} */
    const ids = [];
    /** @type {Map<string, number>} */
    const skipped = new Map();
    for (const subject of subjects) {
        const why = subject.editable ? action.skips(subject) : "are not yours";
        if (why) skipped.set(why, (skipped.get(why) ?? 0) + 1);
        else ids.push(subject.id);
    }
    return { ids, skipped };
}

/**
 * The same for an action by its name, as plain values.
 * @param {string} name
 * @param {Subject[]} subjects
 */
export function previewByName(name, subjects) {
    const action = ACTIONS.find(action => action.name === name);
    if (!action) return { ids: [], skipped: [] };
    const { ids, skipped } = preview(action, subjects);
    return { ids, skipped: [...skipped] };
}
