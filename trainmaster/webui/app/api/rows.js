/** Rows of a long table that lies on the master: read in pieces where somebody looks, and again while they look. */
import { batch, signal } from "../../vendor/signals/signals.js";
import { ApiError, get } from "./http.js";

/** @typedef {{ columns: string[], rows: unknown[][], total: number, states: { [name: string]: number } }} TablePage */
/** @typedef {Readonly<Record<string, any>> & { id: number }} Row by the names of the columns */

const PIECE = 200;
const EXPORTED = 5000; // rows of one call where all are read

/** The rows of one filter and order; another filter or order needs another object. */
export class WindowedRows {
    /** @param {(offset: number, limit: number) => string} address of the call for some of the rows */
    constructor(address) {
        this.address = address;
        this.total = signal(0);
        /** How many there are in each state. */
        this.states = signal(/** @type {Record<string, number>} */ ({}));
        /** Counts the changes of what is there: who draws rows reads it. */
        this.version = signal(0);
        /** Whether other rows than these would come now: they wait until somebody wants them. */
        this.outdated = signal(false);
        this.loaded = signal(false);
        this.failed = signal("");
        /** Whether the question itself was refused, as a filter that cannot be read. */
        this.refused = signal(false);
        /** @type {Map<number, Row>} */
        this.rows = new Map();
        /** @type {Set<number>} */
        this.requested = new Set();
    }

    /** @param {number} index */
    at(index) {
        return this.rows.get(index);
    }

    /**
     * Reads the pieces around these rows that are not there.
     * @param {number} from
     * @param {number} to exclusive
     */
    ensureLoaded(from, to) {
        const last = Math.floor(Math.max(from, Math.min(to, this.total.value) - 1) / PIECE);
        for (let piece = Math.floor(from / PIECE); piece <= last; piece += 1) {
            if (!this.requested.has(piece)) void this.load(piece);
        }
    }

    /** @param {number} piece */
    async load(piece) {
        this.requested.add(piece);
        try {
            const answer = await this.fetchRows(piece * PIECE, PIECE);
            batch(() => {
                const rows = rowObjects(answer);
                for (const [at, row] of rows.entries()) this.rows.set(piece * PIECE + at, row);
                this.total.value = answer.total;
                this.states.value = answer.states;
                this.loaded.value = true;
                this.failed.value = "";
                this.refused.value = false;
                this.version.value += 1;
            });
        } catch (error) {
            this.requested.delete(piece);
            batch(() => {
                this.failed.value = error instanceof Error ? error.message : String(error);
                this.refused.value = error instanceof ApiError && error.status === 400;
            });
        }
    }

    /**
     * @param {number} offset
     * @param {number} limit
     * @returns {Promise<TablePage>}
     */
    fetchRows(offset, limit) {
        return get(this.address(offset, limit));
    }

    /**
     * Reads the visible piece again: values change where they are, and other rows wait.
     * @param {number} from
     */
    async refresh(from) {
        const piece = Math.floor(from / PIECE);
        if (!this.loaded.value) {
            if (this.failed.value) await this.load(piece);
            return;
        }
        let answer;
        try {
            answer = await this.fetchRows(piece * PIECE, PIECE);
        } catch {
            return; // the shell says when the master does not answer
        }
        batch(() => {
            const places = new Map([...this.rows].map(([at, row]) => [row.id, at]));
            let same = answer.total === this.total.value;
            for (const [at, row] of rowObjects(answer).entries()) {
                const index = places.get(row.id);
                if (index !== undefined) this.rows.set(index, row);
                same &&= index === piece * PIECE + at;
            }
            this.states.value = answer.states;
            this.outdated.value = !same;
            this.version.value += 1;
        });
    }

    /** All rows, for a file or for marks. */
    async fetchAll() {
        /** @type {Row[]} */
        const rows = [];
        for (;;) {
            const answer = await this.fetchRows(rows.length, EXPORTED);
            rows.push(...rowObjects(answer));
            if (answer.rows.length === 0 || rows.length >= answer.total) return rows;
        }
    }
}

/** @param {TablePage} answer */
function rowObjects(answer) {
    return answer.rows.map(
        row => /** @type {Row} */ (Object.fromEntries(answer.columns.map((name, at) => [name, row[at]]))),
    );
}
