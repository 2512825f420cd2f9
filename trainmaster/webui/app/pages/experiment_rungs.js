/** The rung race: what the search knew at any moment, played back from its decisions. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { count, exact, number, plural, visible } from "../lib/format.js";
import { eventsOf, leader, momentOf, sentence, valueAxis } from "../lib/rungs.js";
import { Value } from "../ui/cells.js";
import { stillPlease, usePlayer } from "../ui/player.js";
import { href, place, setQuery } from "../ui/router.js";
import { Race } from "../ui/rung_race.js";
import { Waiting } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";

/** @import { RungRace } from "../../types/api.d.ts" */
/** @import { RungEvent, RungMoment } from "../lib/rungs.js" */
/** @import { PlayerState } from "../ui/player.js" */
/** @import { Cell } from "../lib/files.js" */
/** @import { ExperimentView } from "./experiment.js" */

const { a, button, caption, div, h2, input, label, option, p, section, select, span, table, tbody, td, th, thead, tr } =
    tags;

const PIECE = 20_000; // events of a call
const MOST = 200_000; // events that the page holds
const SPEEDS = [1, 5, 20, 100]; // events a second
const USUAL_SPEED = 5;
const COLUMNS = /** @type {const} */ ([
    ...["number", "at", "bracket", "rung", "trial", "value", "decision", "rank", "of", "keep", "cut", "story"],
]);

export const Tab = component((/** @type {{ view: ExperimentView }} */ { view }) => {
    const { id } = view.board.experiment;
    const race = useSignal(/** @type {RungRace | null} */ (null));
    const said = useSignal("");
    // Whoever has reached a rung since the last look is in the board's ranking.
    const known = view.board.brackets.map(one => one.rungs.map(rung => rung.trials.length).join()).join(";");
    useEffect(() => {
        let gone = false;
        all(id).then(
            answer => {
                if (!gone) race.value = answer;
            },
            error => {
                if (!gone) said.value = error.message;
            },
        );
        return () => {
            gone = true;
        };
    }, [id, known]);
    const found = race.value;
    if (!found)
        return said.value ? div({ class: "empty", role: "alert" }, p(null, visible(said.value, 500))) : Waiting({});
    if (found.brackets.length === 0)
        return div({ class: "empty" }, p(null, "Its search compares no trials at rungs: there is no race to show."));
    return Player({ view, race: found });
});

/** All events, in pieces. @param {number} id @returns {Promise<RungRace>} */
async function all(id) {
    /** @param {number} after @returns {Promise<RungRace>} */
    const piece = after => get(`api/x1/experiments/${id}/rungs?limit=${PIECE}${after ? `&after=${after}` : ""}`);
    const found = await piece(0);
    while (found.rows.length < Math.min(found.total, MOST)) {
        const next = await piece(found.rows.length);
        if (next.rows.length === 0) break;
        found.rows.push(...next.rows);
    }
    return found;
}

const Player = component((/** @type {{ view: ExperimentView, race: RungRace }} */ { view, race }) => {
    const { query } = place.value;
    const events = useMemo(() => eventsOf(race), [race]);
    const marked = whole(query.get("trial"));
    const ofTrial = useMemo(() => events.findLast(one => one.trial === marked), [events, marked]);
    const bracket = Math.min(whole(query.get("bracket")) || (ofTrial?.bracket ?? 0) + 1, race.brackets.length);
    const units = race.brackets[bracket - 1]?.units ?? [];
    const mine = useMemo(() => events.filter(one => one.bracket === bracket - 1), [events, bracket]);
    const written = query.has("at")
        ? Math.min(whole(query.get("at")), events.length)
        : (ofTrial?.number ?? events.length);
    const player = usePlayer(written, mine, whole(query.get("speed")) || USUAL_SPEED);
    const at = player.at;
    const moment = useMemo(
        () => momentOf(mine, bracket - 1, units, at, race.smallerIsBetter),
        [mine, at, race.smallerIsBetter],
    );
    const totals = useMemo(() => units.map((_, rung) => mine.filter(one => one.rung === rung).length), [mine]);
    const scale = query.get("log");
    const axis = useMemo(
        () => valueAxis(mine, bracket - 1, scale === null ? undefined : scale === "yes"),
        [mine, scale],
    );
    const unit = visible(race.timeMetric, 40);
    const event = mine.findLast(one => one.number <= at) ?? null;
    const told = event
        ? sentence(event, { clock: clockOf(event.at), units: units[event.rung] ?? 0, unit })
        : "Before the first trial had reached a rung.";
    return div(
        { class: "tab-columns" },
        section(
            { class: "wide" },
            div(
                { class: "section-head" },
                h2(null, "Rung race"),
                race.brackets.length > 1
                    ? label(
                          { class: "chart-tool" },
                          "Bracket",
                          select(
                              {
                                  value: String(bracket),
                                  onChange: event => setQuery({ bracket: event.currentTarget.value, trial: null }),
                              },
                              race.brackets.map((one, place) =>
                                  option(
                                      { key: place, value: String(place + 1) },
                                      `${place + 1}: ${plural(one.units.length, "rung")}, ${plural(one.trials, "trial")}`,
                                  ),
                              ),
                          ),
                      )
                    : null,
                button(
                    {
                        type: "button",
                        class: "switch",
                        "aria-pressed": axis?.log ?? false,
                        onClick: () => setQuery({ log: axis?.log ? "no" : "yes" }),
                    },
                    "log",
                ),
                span({ class: "gap" }),
                span({ class: "muted" }, "space plays, ← → step, shift to the next stop"),
            ),
            Controls({ player, mine, total: events.length }),
            p(
                { class: "race-told", "aria-live": player.playing ? "off" : "polite" },
                told,
                event && !player.playing
                    ? [
                          " ",
                          a({ href: href(`trials/${event.trial}`) }, `Trial ${event.trial}`),
                          event.story === null
                              ? null
                              : [
                                    " · ",
                                    a(
                                        {
                                            href: href(`experiments/${view.board.experiment.id}/story`, {
                                                trial: String(event.trial),
                                            }),
                                        },
                                        "its story",
                                    ),
                                ],
                      ]
                    : null,
            ),
            race.total > events.length
                ? p({ class: "said" }, `The first ${count(events.length)} of ${count(race.total)} events are shown.`)
                : null,
            axis
                ? Race({
                      rungs: moment,
                      totals,
                      axis,
                      unit,
                      metric: race.metric,
                      told: `${told} Bracket ${bracket}: ${moment.map(words).join("; ")}. The tables below say the same.`,
                      trial: marked,
                      now: event?.number ?? 0,
                      file: {
                          title: `experiment ${view.board.experiment.id}, rungs of bracket ${bracket} after event ${at}`,
                          names: [...COLUMNS],
                          rows: () =>
                              mine.map(one =>
                                  COLUMNS.map(key => /** @type {Cell} */ (one[/** @type {keyof RungEvent} */ (key)])),
                              ),
                      },
                      onPick: trial => setQuery({ trial: trial === marked ? null : String(trial), at: String(at) }),
                  })
                : p({ class: "muted" }, "No trial has reached a rung with a value yet."),
        ),
        section({ class: "wide" }, RungTable({ moment, unit, metric: race.metric, at })),
        section(
            { class: "wide fixed-table" },
            h2(null, "All decisions of this bracket"),
            Events({ events: mine, id: view.board.experiment.id, bracket, metric: race.metric }),
        ),
    );
});

const Controls = component(
    (/** @type {{ player: PlayerState, mine: RungEvent[], total: number }} */ { player, mine, total }) => {
        const still = stillPlease();
        const event = mine.findLast(one => one.number <= player.at);
        return div(
            { class: "player", role: "group", "aria-label": "Playback" },
            button({ type: "button", onClick: () => player.step(-1, true) }, "◂ stop"),
            button({ type: "button", "aria-label": "One event back", onClick: () => player.step(-1, false) }, "◂"),
            still
                ? null
                : button({ type: "button", class: "primary", onClick: player.play }, player.playing ? "Pause" : "Play"),
            button({ type: "button", "aria-label": "One event on", onClick: () => player.step(1, false) }, "▸"),
            button({ type: "button", onClick: () => player.step(1, true) }, "stop ▸"),
            input({
                type: "range",
                "aria-label": "Moment",
                "aria-valuetext": event ? `event ${event.number} of ${total}, ${clockOf(event.at)}` : "the beginning",
                min: 0,
                max: total,
                step: 1,
                value: player.at,
                onInput: one => player.show(Number(one.currentTarget.value)),
                onChange: one => player.keep(Number(one.currentTarget.value)),
            }),
            span({ class: "player-number muted" }, `${count(player.at)} of ${count(total)}`),
            event ? span({ class: "muted" }, exact(event.at * 1000)) : null,
            still
                ? null
                : label(
                      { class: "chart-tool" },
                      "Speed",
                      select(
                          {
                              value: String(player.speed),
                              onChange: one =>
                                  setQuery(
                                      { speed: one.currentTarget.value, at: String(player.at) },
                                      { replace: true },
                                  ),
                          },
                          [...new Set([...SPEEDS, player.speed])]
                              .sort((one, other) => one - other)
                              .map(one => option({ key: one, value: String(one) }, `${one} a second`)),
                      ),
                  ),
        );
    },
);

const RungTable = component(
    (
        /** @type {{ moment: RungMoment[], unit: string, metric: string, at: number }} */ { moment, unit, metric, at },
    ) => {
        const first = leader(moment);
        const heads = ["Rung", unit, "Reached", "Went on", "Stopped", "Failed", "Cut", "Best", "of trial"];
        return table(
            { class: "rung-table" },
            caption(null, `The rungs after event ${count(at)}: ${visible(metric, 60)}`),
            thead(
                null,
                tr(
                    null,
                    heads.map(one => th({ key: one, scope: "col" }, one)),
                ),
            ),
            tbody(
                null,
                moment.map((rung, place) => {
                    const many = (/** @type {string[]} */ ...looks) =>
                        rung.dots.filter(dot => looks.includes(dot.look)).length;
                    const best = rung.best?.event ?? null;
                    return tr(
                        { key: place, class: rung.best && rung.best === first ? "leads" : "" },
                        th({ scope: "row" }, String(place + 1)),
                        td(null, number(rung.units)),
                        td(null, count(rung.dots.length)),
                        td(null, count(many("running", "passed"))),
                        td(null, count(many("stopped"))),
                        td(null, count(many("failed"))),
                        td(null, Value({ value: rung.cut })),
                        td(null, Value({ value: best?.value ?? null })),
                        td(null, best ? a({ href: href(`trials/${best.trial}`) }, String(best.trial)) : "–"),
                    );
                }),
            ),
        );
    },
);

const Events = component(
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
        const words = /** @type {const} */ ({ unsorted: true });
        return Table({
            label: "Decisions",
            rows,
            rowKey: (/** @type {RungEvent} */ row) => row.number,
            address: (/** @type {RungEvent} */ row) => momentAddress(id, row, bracket),
            columns: [
                {
                    ...words,
                    key: "number",
                    title: "Event",
                    width: 120,
                    cell: (/** @type {RungEvent} */ row) =>
                        a({ href: momentAddress(id, row, bracket), tabIndex: -1 }, `show ${row.number}`),
                },
                { ...words, key: "at", title: "Time", width: 210, cell: row => exact(row.at * 1000) },
                { ...words, key: "trial", title: "Trial", width: 80, align: right, cell: row => String(row.trial) },
                { ...words, key: "rung", title: "Rung", width: 60, align: right, cell: row => String(row.rung + 1) },
                {
                    ...words,
                    key: "value",
                    title: visible(metric, 40),
                    width: 100,
                    align: right,
                    cell: row => Value({ value: row.value }),
                },
                { ...words, key: "decision", title: "Decision", width: 100, cell: row => row.decision },
                {
                    ...words,
                    key: "rank",
                    title: "Rank then",
                    width: 110,
                    align: right,
                    cell: row => `${row.rank} of ${row.of}`,
                },
                { ...words, key: "keep", title: "Go on", width: 70, align: right, cell: row => String(row.keep) },
                {
                    ...words,
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
function words(rung, at) {
    const cut = rung.cut === null ? "" : `, cut ${number(rung.cut)}`;
    return `rung ${at + 1} reached by ${plural(rung.dots.length, "trial")}${cut}`;
}

/** @param {number} seconds */
function clockOf(seconds) {
    return exact(seconds * 1000).slice(11, 19);
}

/** @param {string | null} text */
function whole(text) {
    return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : 0;
}
