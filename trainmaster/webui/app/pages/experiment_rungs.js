/** The rung race: what the search knew at any moment, played back from its decisions. */
import { useMemo } from "../../vendor/preact/hooks.js";
import { get } from "../api/http.js";
import { count, exact, number, plural, visible } from "../lib/format.js";
import { arrivalsAt, eventsOf, leader, momentOf, sentence, valueAxis } from "../lib/rungs.js";
import { Value } from "../ui/cells.js";
import { prefersReducedMotion, usePlayer } from "../ui/playback.js";
import { PartError, useLoad } from "../ui/query.js";
import { href, location, setQuery } from "../ui/router.js";
import { Race } from "../ui/rung_race.js";
import { LoadingBar } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";

/** @import { RungRace } from "../../types/api.d.ts" */
/** @import { Axis } from "../lib/axes.js" */
/** @import { RungEvent, RungMoment } from "../lib/rungs.js" */
/** @import { PlayerState } from "../ui/playback.js" */
/** @import { Cell } from "../lib/files.js" */
/** @import { ExperimentView } from "./experiment.js" */

const { a, button, caption, div, h2, input, label, option, p, section, select, span, table, tbody, td, th, thead, tr } =
    tags;

const PAGE_SIZE = 20_000; // events of a call
const MAX_EVENTS = 200_000; // events that the page holds
const SPEEDS = [1, 5, 20, 100]; // events a second
const DEFAULT_SPEED = 5;
const COLUMNS = /** @type {const} */ ([
    ...["number", "at", "bracket", "rung", "trial", "value", "decision", "rank", "of", "keep", "cut", "story"],
]);

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id } = view.board.experiment;
    // The board has the trials that have reached a rung since the last look.
    const reached = view.board.brackets.map(bracket => bracket.rungs.map(rung => rung.trials.length).join()).join(";");
    const { data: race, error } = useLoad(`${id} ${reached}`, () => loadRace(id));
    if (!race) return error ? PartError({ error }) : LoadingBar({});
    if (race.brackets.length === 0)
        return div({ class: "empty" }, p(null, "This search does not compare trials at rungs, so there is no race."));
    return Player({ view, race });
});

/** All events, in pieces. @param {number} id @returns {Promise<RungRace>} */
async function loadRace(id) {
    /** @param {number} after @returns {Promise<RungRace>} */
    const loadPage = after => get(`api/x1/experiments/${id}/rungs?limit=${PAGE_SIZE}${after ? `&after=${after}` : ""}`);
    const result = await loadPage(0);
    while (result.rows.length < Math.min(result.total, MAX_EVENTS)) {
        const next = await loadPage(result.rows.length);
        if (next.rows.length === 0) break;
        result.rows.push(...next.rows);
    }
    return result;
}

const Player = component((/** @type {{ view: ExperimentView, race: RungRace }} */ { view, race }) => {
    const { query } = location.value;
    const { id } = view.board.experiment;
    const all = useMemo(() => eventsOf(race), [race]);
    const trial = parseCount(query.get("trial"));
    const ofTrial = useMemo(() => all.findLast(event => event.trial === trial), [all, trial]);
    const bracket = Math.min(parseCount(query.get("bracket")) || (ofTrial?.bracket ?? 0) + 1, race.brackets.length);
    const units = race.brackets[bracket - 1]?.units ?? [];
    const events = useMemo(() => all.filter(event => event.bracket === bracket - 1), [all, bracket]);
    const told = useMemo(() => all.find(event => event.story === parseCount(query.get("decision"))), [all, query]);
    const start = query.has("at")
        ? Math.min(parseCount(query.get("at")), all.length)
        : ((told ?? ofTrial)?.number ?? all.length);
    const pauses = race.brackets[bracket - 1]?.pauses ?? false;
    const player = usePlayer(start, events, parseCount(query.get("speed")) || DEFAULT_SPEED);
    const { at } = player;
    const moment = useMemo(
        () => momentOf(events, bracket - 1, units, at, race.smallerIsBetter),
        [events, at, race.smallerIsBetter],
    );
    const scale = query.get("log");
    const axis = useMemo(
        () => valueAxis(events, bracket - 1, scale === null ? undefined : scale === "yes"),
        [events, scale],
    );
    const { metric } = race;
    const unit = visible(race.timeMetric, 40);
    const event = events.findLast(candidate => candidate.number <= at) ?? null;
    const text = event
        ? sentence(event, { clock: timeOfDay(event.at), units: units[event.rung] ?? 0, unit })
        : "Before the first trial reached a rung.";
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            RaceTools({ race, bracket, log: axis?.log ?? false }),
            Controls({ player, events, total: all.length, pauses }),
            EventText({ id, text, event, playing: player.playing }),
            race.total > all.length
                ? p(
                      { class: "error-text" },
                      `Only the first ${count(all.length)} of ${count(race.total)} events are shown.`,
                  )
                : null,
            axis
                ? RaceFigure({ id, moment, events, bracket, axis, unit, metric, text, trial, at, units, pauses })
                : p({ class: "muted" }, "No trial has reached a rung with a value yet."),
        ),
        section({ class: "wide" }, RungTable({ moment, unit, metric, at, pauses })),
        section(
            { class: "wide fixed-table" },
            h2(null, "All decisions of this bracket"),
            DecisionTable({ events, id, bracket, metric }),
        ),
    );
});

/** Chooses the bracket and the scale. */
const RaceTools = component((/** @type {{ race: RungRace, bracket: number, log: boolean }} */ { race, bracket, log }) =>
    div(
        { class: "section-head" },
        h2(null, "Rung race"),
        race.brackets.length > 1 ? BracketSelect({ brackets: race.brackets, bracket }) : null,
        button(
            {
                type: "button",
                class: "switch",
                "aria-pressed": log,
                onClick: () => setQuery({ log: log ? "no" : "yes" }),
            },
            "log",
        ),
        span({ class: "gap" }),
        span({ class: "muted" }, "space plays, ← → step, shift to the next stop"),
    ),
);

const BracketSelect = component(
    (/** @type {{ brackets: RungRace["brackets"], bracket: number }} */ { brackets, bracket }) =>
        label(
            { class: "chart-tool" },
            "Bracket",
            select(
                {
                    value: String(bracket),
                    onChange: event => setQuery({ bracket: event.currentTarget.value, trial: null }),
                },
                brackets.map(({ units, trials }, index) =>
                    option(
                        { key: index, value: String(index + 1) },
                        `${index + 1}: ${plural(units.length, "rung")}, ${plural(trials, "trial")}`,
                    ),
                ),
            ),
        ),
);

/** What happened last, with links to the trial and to its story. */
const EventText = component(
    (
        /** @type {{ id: number, text: string, event: RungEvent | null, playing: boolean }} */ {
            id,
            text,
            event,
            playing,
        },
    ) =>
        p(
            { class: "event-text", "aria-live": playing ? "off" : "polite" },
            text,
            event && !playing ? [" ", a({ href: href(`trials/${event.trial}`) }, `Trial ${event.trial}`)] : null,
            event && !playing && event.story !== null ? [" · ", StoryLink({ id, trial: event.trial })] : null,
        ),
);

const StoryLink = component((/** @type {{ id: number, trial: number }} */ { id, trial }) =>
    a({ href: href(`experiments/${id}/story`, { trial: String(trial) }) }, "its story"),
);

/**
 * @typedef {object} RaceFigureProperties
 * @property {number} id of the experiment
 * @property {RungMoment[]} moment
 * @property {RungEvent[]} events of the bracket
 * @property {number} bracket from 1
 * @property {Axis} axis
 * @property {string} unit
 * @property {string} metric
 * @property {string} text
 * @property {number} trial the marked one
 * @property {number} at
 * @property {number[]} units
 * @property {boolean} pauses
 */
const RaceFigure = component((/** @type {RaceFigureProperties} */ properties) => {
    const { id, moment, events, bracket, axis, unit, metric, text, trial, at, units, pauses } = properties;
    const totals = useMemo(() => units.map((_, rung) => arrivalsAt(events, rung)), [events]);
    /** @param {RungEvent} event */
    const cells = event => COLUMNS.map(key => /** @type {Cell} */ (event[/** @type {keyof RungEvent} */ (key)]));
    return Race({
        rungs: moment,
        totals,
        axis,
        unit,
        metric,
        description: `${text} Bracket ${bracket}: ${moment.map(rungText).join("; ")}. The tables below have the same data.`,
        trial,
        now: events.findLast(event => event.number <= at)?.arrival ?? 0,
        pauses,
        file: {
            title: `experiment ${id}, rungs of bracket ${bracket} after event ${at}`,
            columns: [...COLUMNS],
            rows: () => events.map(cells),
        },
        onPick: picked => setQuery({ trial: picked === trial ? null : String(picked), at: String(at), decision: null }),
    });
});

const Controls = component(
    (
        /** @type {{ player: PlayerState, events: RungEvent[], total: number, pauses: boolean }} */ {
            player,
            events,
            total,
            pauses,
        },
    ) => {
        const word = pauses ? "pause" : "stop";
        const still = prefersReducedMotion();
        const event = events.findLast(candidate => candidate.number <= player.at);
        return div(
            { class: "player", role: "group", "aria-label": "Playback" },
            button({ type: "button", onClick: () => player.step(-1, true) }, `◂ ${word}`),
            button({ type: "button", "aria-label": "One event back", onClick: () => player.step(-1, false) }, "◂"),
            still
                ? null
                : button({ type: "button", class: "primary", onClick: player.play }, player.playing ? "Pause" : "Play"),
            button({ type: "button", "aria-label": "One event forward", onClick: () => player.step(1, false) }, "▸"),
            button({ type: "button", onClick: () => player.step(1, true) }, `${word} ▸`),
            input({
                type: "range",
                "aria-label": "Moment",
                "aria-valuetext": event ? `event ${event.number} of ${total}, ${timeOfDay(event.at)}` : "the beginning",
                min: 0,
                max: total,
                step: 1,
                value: player.at,
                onInput: change => player.show(Number(change.currentTarget.value)),
                onChange: change => player.keep(Number(change.currentTarget.value)),
            }),
            span({ class: "player-number muted" }, `${count(player.at)} of ${count(total)}`),
            event ? span({ class: "muted" }, exact(event.at * 1000)) : null,
            still ? null : SpeedSelect({ player }),
        );
    },
);

const SpeedSelect = component((/** @type {{ player: PlayerState }} */ { player }) =>
    label(
        { class: "chart-tool" },
        "Speed",
        select(
            {
                value: String(player.speed),
                onChange: event =>
                    setQuery({ speed: event.currentTarget.value, at: String(player.at) }, { replace: true }),
            },
            [...new Set([...SPEEDS, player.speed])]
                .sort((a, b) => a - b)
                .map(speed => option({ key: speed, value: String(speed) }, `${speed} a second`)),
        ),
    ),
);

const RungTable = component(
    (
        /** @type {{ moment: RungMoment[], unit: string, metric: string, at: number, pauses: boolean }} */ {
            moment,
            unit,
            metric,
            at,
            pauses,
        },
    ) => {
        const first = leader(moment);
        const held = pauses ? ["Paused", "Stopped"] : ["Stopped"];
        const heads = ["Rung", unit, "Reached", "Continued", ...held, "Failed", "Cut", "Best", "of trial"];
        return table(
            { class: "rung-table" },
            caption(null, `The rungs after event ${count(at)}: ${visible(metric, 60)}`),
            thead(
                null,
                tr(
                    null,
                    heads.map(title => th({ key: title, scope: "col" }, title)),
                ),
            ),
            tbody(
                null,
                moment.map((rung, index) => {
                    const countOf = (/** @type {string[]} */ ...looks) =>
                        rung.dots.filter(dot => looks.includes(dot.look)).length;
                    const best = rung.best?.event ?? null;
                    return tr(
                        { key: index, class: rung.best && rung.best === first ? "leads" : "" },
                        th({ scope: "row" }, String(index + 1)),
                        td(null, number(rung.units)),
                        td(null, count(rung.dots.length)),
                        td(null, count(countOf("running", "passed"))),
                        pauses ? td(null, count(countOf("paused"))) : null,
                        td(null, count(countOf("stopped"))),
                        td(null, count(countOf("failed"))),
                        td(null, Value({ value: rung.cut })),
                        td(null, Value({ value: best?.value ?? null })),
                        td(null, best ? a({ href: href(`trials/${best.trial}`) }, String(best.trial)) : "–"),
                    );
                }),
            ),
        );
    },
);

const DecisionTable = component(
    (
        /** @type {{ events: RungEvent[], id: number, bracket: number, metric: string }} */ {
            events,
            id,
            bracket,
            metric,
        },
    ) => {
        const rows = useRows(events, String(bracket));
        const right = /** @type {const} */ ("right");
        const unsorted = /** @type {const} */ ({ unsorted: true });
        return Table({
            label: "Decisions",
            rows,
            rowKey: (/** @type {RungEvent} */ row) => row.number,
            address: (/** @type {RungEvent} */ row) => momentAddress(id, row, bracket),
            columns: [
                {
                    ...unsorted,
                    key: "number",
                    title: "Event",
                    width: 120,
                    cell: (/** @type {RungEvent} */ row) =>
                        a({ href: momentAddress(id, row, bracket), tabIndex: -1 }, `show ${row.number}`),
                },
                { ...unsorted, key: "at", title: "Time", width: 210, cell: row => exact(row.at * 1000) },
                { ...unsorted, key: "trial", title: "Trial", width: 80, align: right, cell: row => String(row.trial) },
                { ...unsorted, key: "rung", title: "Rung", width: 60, align: right, cell: row => String(row.rung + 1) },
                {
                    ...unsorted,
                    key: "value",
                    title: visible(metric, 40),
                    width: 100,
                    align: right,
                    cell: row => Value({ value: row.value }),
                },
                { ...unsorted, key: "decision", title: "Decision", width: 100, cell: row => row.decision },
                {
                    ...unsorted,
                    key: "rank",
                    title: "Rank",
                    width: 110,
                    align: right,
                    cell: row => `${row.rank} of ${row.of}`,
                },
                { ...unsorted, key: "keep", title: "Kept", width: 70, align: right, cell: row => String(row.keep) },
                {
                    ...unsorted,
                    key: "cut",
                    title: "Cut",
                    width: 100,
                    align: right,
                    cell: row => Value({ value: row.cut }),
                },
            ],
        });
    },
);

/** @param {number} id @param {RungEvent} event @param {number} bracket */
function momentAddress(id, event, bracket) {
    return href(`experiments/${id}/rungs`, { bracket: String(bracket), at: String(event.number) });
}

/** @param {RungMoment} rung @param {number} at */
function rungText(rung, at) {
    const cut = rung.cut === null ? "" : `, cut ${number(rung.cut)}`;
    return `rung ${at + 1} reached by ${plural(rung.dots.length, "trial")}${cut}`;
}

/** @param {number} seconds */
function timeOfDay(seconds) {
    return exact(seconds * 1000).slice(11, 19);
}

/** @param {string | null} text */
function parseCount(text) {
    return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : 0;
}
