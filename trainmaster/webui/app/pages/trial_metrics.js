/** All metrics of a trial: the searcher's first, the others as small charts that share their cursor. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { plain } from "../lib/ansi.js";
import { plural, visible } from "../lib/format.js";
import { Chart } from "../ui/chart.js";
import { href, place, setQuery } from "../ui/router.js";
import { Waiting } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { TrialCurves } from "../../types/api.d.ts" */

const { a, button, code, div, input, label, option, p, pre, select, span } = tags;

const AT_ONCE = 12; // charts; more on demand
const WAYS = /** @type {const} */ ([
    ["", "batches"],
    ["seconds", "seconds since its start"],
]);

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, metrics, log } = view.board;
    const { query } = place.value;
    const filter = query.get("metrics") ?? "";
    const x = query.get("x") ?? "";
    const most = useSignal(AT_ONCE);
    const found = useSignal(/** @type {TrialCurves | null} */ (null));
    const said = useSignal("");
    const wanted = useMemo(() => {
        const all = metrics
            .filter(one => `${one.group} ${one.name}`.toLowerCase().includes(filter.toLowerCase()))
            .sort((one, other) => Number(other.name === trial.metric) - Number(one.name === trial.metric));
        return { all, shown: all.slice(0, most.value) };
    }, [metrics, filter, most.value]);
    const names = wanted.shown.map(one => `${encodeURIComponent(one.group)}:${encodeURIComponent(one.name)}`).join(",");
    const read = useMemo(() => ({ asked: 0, shown: 0 }), []);
    useEffect(() => {
        if (!names) return;
        read.asked += 1;
        const mine = read.asked;
        const words = new URLSearchParams({ metrics: names, points: "500", ...(x ? { x } : {}) });
        get(`api/x1/trials/${trial.id}/curves?${words}`).then(
            answer => {
                if (mine < read.shown) return; // a later answer was faster
                read.shown = mine;
                found.value = answer;
                said.value = "";
            },
            error => {
                said.value = error.message;
            },
        );
    }, [names, x, view.board]);
    const charts = useMemo(
        () =>
            (found.value?.curves ?? []).map(one => ({
                label: `${one.metric} (${one.group})`,
                xTitle: WAYS.find(way => way[0] === x)?.[1] ?? x,
                yTitle: one.metric,
                x: one.x,
                series: [{ name: one.metric, y: one.y, bold: true }],
                source: `trial ${trial.id}`,
            })),
        [found.value],
    );
    return div(
        { class: "tab-columns" },
        div(
            { class: "section-head wide" },
            label(
                { class: "chart-tool" },
                "Metrics",
                input({
                    type: "search",
                    value: filter,
                    placeholder: plural(metrics.length, "metric"),
                    "aria-label": "Filter metrics",
                    onInput: event => setQuery({ metrics: event.currentTarget.value || null }, { replace: true }),
                }),
            ),
            label(
                { class: "chart-tool" },
                "over",
                select(
                    { value: x, onChange: event => setQuery({ x: event.currentTarget.value || null }) },
                    WAYS.map(([value, text]) => option({ key: value, value }, text)),
                ),
            ),
            said.value ? span({ class: "said", role: "alert" }, visible(said.value, 300)) : null,
        ),
        metrics.length === 0
            ? div(
                  { class: "empty wide" },
                  p(null, "No metric has been reported yet. In the training:"),
                  pre(
                      null,
                      code(
                          null,
                          "core_context.train.report_validation_metrics(steps_completed=n, metrics={'val_loss': 0.3})",
                      ),
                  ),
              )
            : found.value === null
              ? Waiting({})
              : charts.map((data, at) =>
                    div(
                        { key: data.label, class: at === 0 ? "wide" : "" },
                        Chart({ data, cursor: `trial-${x}`, height: at === 0 ? 260 : 180 }),
                    ),
                ),
        wanted.all.length > most.value
            ? button(
                  {
                      type: "button",
                      class: "wide",
                      onClick: () => {
                          most.value += AT_ONCE;
                      },
                  },
                  `${plural(wanted.all.length - most.value, "more metric")}: show ${Math.min(AT_ONCE, wanted.all.length - most.value)}`,
              )
            : null,
        log.length
            ? div(
                  { class: "wide" },
                  div(
                      { class: "section-head" },
                      span({ class: "chart-title" }, "Last lines"),
                      a({ href: href(`trials/${trial.id}/log`) }, "The whole log"),
                      code(null, `det trial logs -f ${trial.id}`),
                  ),
                  pre(
                      { class: "last-lines", tabIndex: 0, "aria-label": "The last lines of the log" },
                      log.map(line =>
                          a(
                              {
                                  key: line.id,
                                  class: `log-${line.level.toLowerCase()}`,
                                  href: href(`trials/${trial.id}/log`, { line: String(line.id) }),
                                  tabIndex: -1,
                                  title: "This line in the log",
                              },
                              visible(plain(line.text), 500),
                              "\n",
                          ),
                      ),
                  ),
              )
            : null,
    );
});
