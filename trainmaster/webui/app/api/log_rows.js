/** Lines of a task's log, which stays on the master: read where somebody looks, as few as memory may hold. */
import { batch, signal } from "../../vendor/signals/signals.js";
import { ApiError, get, ROOT } from "./http.js";

/** @import { LogBins, LogWindow, WindowLine } from "../../types/api.d.ts" */

const PIECE = 200; // lines of one call
const AT_THE_END = 200;
const MOST_LINES = 6000; // kept in memory
const MOST_CHARACTERS = 8_000_000;
const MANY = 2000; // lines since the last look from which on they count as skipped
const BINS_EVERY = 5000; // ms between two counts of a growing log

export class LogRows {
    /**
     * @param {string} task
     * @param {URLSearchParams} filter
     * @param {URLSearchParams} search
     */
    constructor(task, filter, search) {
        this.task = task;
        this.filter = filter;
        this.search = search;
        /** The lines that can be scrolled to. */
        this.total = signal(0);
        /** The lines that there are by now: further ones wait for their reader. */
        this.arrived = signal(0);
        this.began = signal(0);
        /** Counts the changes of what is there. */
        this.version = signal(0);
        this.loaded = signal(false);
        this.failed = signal("");
        this.bins = signal(/** @type {LogBins | null} */ (null));
        this.matches = signal(/** @type {number | null} */ (null));
        /** Which match was found last, from 1. */
        this.match = signal(/** @type {number | null} */ (null));
        /** Lines that came too fast to be drawn: the position of the first, and their number. */
        this.skipped = signal(/** @type {{ position: number, lines: number } | null} */ (null));
        /** @type {Map<number, WindowLine>} by position */
        this.lines = new Map();
        /** @type {Set<number>} ids of lines that the search finds, of those that are there */
        this.matched = new Set();
        this.characters = 0;
        /** @type {Set<number>} pieces that are on their way */
        this.requested = new Set();
        this.counted = 0; // when bins were read last
        this.looking = false;
        /** Whether there may be lines that came after what was read last. */
        this.outdated = false;
        this.following = false;
        this.ended = false;
    }

    /** Nothing is read for it any more. */
    end() {
        this.ended = true;
    }

    /** @param {number} position */
    at(position) {
        return this.lines.get(position);
    }

    /**
     * @param {Record<string, string | number | boolean>} query
     * @returns {Promise<LogWindow>}
     */
    fetchWindow(query) {
        const words = new URLSearchParams([...this.filter, ...this.search]);
        for (const [name, value] of Object.entries(query)) words.set(name, String(value));
        return get(`api/x1/tasks/${encodeURIComponent(this.task)}/log?${words}`);
    }

    /**
     * Reads the lines around a place, the log's end without one. Counting matches takes longer and follows.
     * @param {Record<string, string | number | boolean>} [start]
     */
    async open(start = {}) {
        const searching = this.search.has("searchText");
        const atTheEnd = Object.keys(start).length === 0;
        try {
            const size = atTheEnd ? { before: AT_THE_END, after: 0 } : { before: PIECE / 2, after: PIECE };
            const answer = await this.fetchWindow({ ...size, bins: searching || this.bins.peek() ? 0 : 200, ...start });
            batch(() => {
                this.store(answer);
                this.total.value = answer.total;
                this.skipped.value = null;
                this.failed.value = "";
                this.loaded.value = true;
            });
            if (searching) void this.fetchCounts(answer.focus);
            return answer;
        } catch (error) {
            this.failed.value = error instanceof Error ? error.message : String(error);
            return null;
        }
    }

    /** @param {LogWindow} answer */
    store(answer) {
        for (const [index, line] of answer.lines.entries()) {
            const position = answer.position + index;
            if (!this.lines.has(position)) this.characters += line.text.length;
            this.lines.set(position, line);
        }
        for (const id of answer.matched) this.matched.add(id);
        this.arrived.value = answer.total;
        this.began.value = answer.began ?? 0;
        if (answer.bins) this.bins.value = answer.bins;
        if (answer.matches !== null) this.matches.value = answer.matches;
        this.version.value += 1;
        this.evict(answer.position + answer.lines.length / 2);
    }

    /**
     * Forgets lines far from a position.
     * @param {number} position
     */
    evict(position) {
        if (this.lines.size <= MOST_LINES && this.characters <= MOST_CHARACTERS) return;
        const far = [...this.lines.keys()].sort((a, b) => Math.abs(b - position) - Math.abs(a - position));
        for (const at of far.slice(0, far.length / 2)) {
            const line = this.lines.get(at);
            this.lines.delete(at);
            this.characters -= line?.text.length ?? 0;
            if (line) this.matched.delete(line.id);
        }
    }

    /**
     * Reads what is missing among these lines.
     * @param {number} first
     * @param {number} end exclusive
     */
    ensureLoaded(first, end) {
        for (let at = first; at < end; at += 1) {
            if (this.lines.has(at)) continue;
            const piece = Math.floor(at / PIECE);
            if (!this.requested.has(piece)) void this.load(piece);
            at = (piece + 1) * PIECE - 1;
        }
    }

    /** @param {number} piece */
    async load(piece) {
        this.requested.add(piece);
        try {
            const answer = await this.fetchWindow({ position: piece * PIECE, before: 0, after: PIECE, bins: 0 });
            if (this.ended) return;
            batch(() => {
                this.store(answer);
                this.failed.value = "";
            });
        } catch (error) {
            this.failed.value = error instanceof Error ? error.message : String(error);
        } finally {
            this.requested.delete(piece);
        }
    }

    /**
     * Counts lines for the strip, and the matches; `focus` gets its number among them.
     * @param {number | null} [focus]
     */
    async fetchCounts(focus = null) {
        this.counted = Date.now();
        try {
            const size = { before: 0, bins: 200 };
            const answer = await this.fetchWindow(
                focus === null ? { ...size, after: 0 } : { ...size, around: focus, after: 1 },
            );
            if (this.ended) return;
            batch(() => {
                this.bins.value = answer.bins;
                this.matches.value = answer.matches;
                if (focus !== null) this.match.value = answer.match;
            });
        } catch (error) {
            if (error instanceof ApiError) this.failed.value = error.message;
        }
    }

    /**
     * Finds the next or the previous match. Gives its window; null where there is none.
     * @param {"next" | "previous"} direction
     * @param {number | null} from a line's id
     */
    async find(direction, from) {
        try {
            const counted = this.matches.peek() !== null; // counted once, it costs little
            const query = { find: direction, ...(from === null ? {} : { from }), before: PIECE / 2, after: PIECE };
            const answer = await this.fetchWindow({ ...query, bins: counted ? 200 : 0 });
            batch(() => {
                this.store(answer);
                this.failed.value = "";
                this.match.value = answer.match;
            });
            if (!counted) void this.fetchCounts(answer.focus);
            return answer;
        } catch (error) {
            this.failed.value = error instanceof Error ? error.message : String(error);
            return null;
        }
    }

    /**
     * Reads what has come. A reader who follows sees the new end; else only the number of new lines changes. What comes
     * while something is being read may be missing in it, and is read after it.
     * @param {boolean} following
     */
    async refresh(following) {
        this.outdated = true;
        this.following = following;
        if (this.looking || !this.loaded.peek()) return;
        this.looking = true;
        while (this.outdated && !this.ended) {
            this.outdated = false;
            await this.fetchNewLines(this.following);
        }
        this.looking = false;
    }

    /** @param {boolean} following */
    async fetchNewLines(following) {
        try {
            const answer = await this.fetchWindow({ before: following ? AT_THE_END : 0, after: 0, bins: 0 });
            if (this.ended) return;
            const added = answer.total - this.arrived.peek();
            batch(() => {
                if (following && added > MANY)
                    this.skipped.value = { position: this.total.peek(), lines: added - answer.lines.length };
                this.store(answer);
                if (following) this.total.value = answer.total;
                this.failed.value = "";
            });
            if (added > 0 && Date.now() - this.counted > BINS_EVERY) void this.fetchCounts();
        } catch {
            // the shell says when the master does not answer
        }
    }

    /** Lets the reader scroll to all lines that there are. */
    revealAll() {
        this.total.value = this.arrived.value;
    }

    /**
     * A line that is longer than what is shown at first.
     * @param {number} id
     */
    async loadFullLine(id) {
        const answer = await this.fetchWindow({ around: id, before: 0, after: 1, bins: 0, whole: true });
        for (const line of answer.lines) {
            for (const [position, existing] of this.lines) {
                if (existing.id !== line.id) continue;
                this.characters += line.text.length - existing.text.length;
                this.lines.set(position, line);
            }
        }
        this.version.value += 1;
    }

    /** The address of all lines that fit the filter, one JSON object each. */
    get downloadAddress() {
        const words = new URLSearchParams(this.filter);
        if (this.search.has("onlyMatches"))
            for (const name of ["searchText", "enableRegex"]) {
                const value = this.search.get(name);
                if (value) words.set(name, value);
            }
        return new URL(`api/v1/tasks/${encodeURIComponent(this.task)}/logs?${words}`, ROOT).href;
    }
}

/**
 * The texts of a stream of lines in JSON, as a file's content.
 * @param {string} address
 * @returns {Promise<Blob>}
 */
export async function downloadText(address) {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok || !answer.body) throw new ApiError(answer.status, `The master answered ${answer.status}.`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    /** @type {Blob[]} */
    const parts = [];
    let partial = "";
    for (;;) {
        const { done, value } = await reader.read();
        const lines = (partial + (value ?? "")).split("\n");
        partial = done ? "" : (lines.pop() ?? "");
        const texts = lines.filter(Boolean).map(line => {
            const record = JSON.parse(line);
            if (record.error)
                throw new ApiError(
                    0,
                    String(record.error.message ?? record.error.error ?? "The log ended unexpectedly."),
                );
            return String((record.result ?? record).message);
        });
        if (texts.length) parts.push(new Blob(texts));
        if (done) return new Blob(parts, { type: "text/plain" });
    }
}
