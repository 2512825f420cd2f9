/** All metrics of a trial: the searcher's first, the others as small charts that share their cursor. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { plain } from "../lib/ansi.js";
import { plural, visible } from "../lib/format.js";
import { Chart } from "../ui/chart.js";
import { href, location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { TrialCurves } from "../../types/api.d.ts" */

const { a, button, code, div, input, label, option, p, pre, select, span } = tags;

const CHART_LIMIT = 12; // charts; more on demand
const AXES = /** @type {const} */ ([
    ["", "batches"],
    ["seconds", "seconds since start"],
]);

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial, metrics, log } = view.board;
    const { query } = location.value;
    const filter = query.get("metrics") ?? "";
    const x = query.get("x") ?? "";
    const limit = useSignal(CHART_LIMIT);
    const curves = useSignal(/** @type {TrialCurves | null} */ (null));
    const error = useSignal("");
    const selection = useMemo(() => {
        const all = metrics
            .filter(metric => `${metric.group} ${metric.name}`.toLowerCase().includes(filter.toLowerCase()))
            .sort((a, b) => Number(b.name === trial.metric) - Number(a.name === trial.metric));
        return { all, shown: all.slice(0, limit.value) };
    }, [metrics, filter, limit.value]);
    const names = selection.shown
        .map(metric => `${encodeURIComponent(metric.group)}:${encodeURIComponent(metric.name)}`)
        .join(",");
    const read = useMemo(() => ({ asked: 0, shown: 0 }), []);
    useEffect(() => {
        if (!names) return;
        read.asked += 1;
        const request = read.asked;
        const words = new URLSearchParams({ metrics: names, points: "500", ...(x ? { x } : {}) });
        get(`api/x1/trials/${trial.id}/curves?${words}`).then(
            answer => {
                if (request < read.shown) return; // a later answer was faster
                read.shown = request;
                curves.value = answer;
                error.value = "";
            },
            failure => {
                error.value = failure.message;
            },
        );
    }, [names, x, view.board]);
    const charts = useMemo(
        () =>
            (curves.value?.curves ?? []).map(curve => ({
                label: `${curve.metric} (${curve.group})`,
                xTitle: AXES.find(axis => axis[0] === x)?.[1] ?? x,
                yTitle: curve.metric,
                x: curve.x,
                series: [{ name: curve.metric, y: curve.y, bold: true }],
                source: `trial ${trial.id}`,
            })),
        [curves.value],
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
                    AXES.map(([value, text]) => option({ key: value, value }, text)),
                ),
            ),
            error.value ? span({ class: "error-text", role: "alert" }, visible(error.value, 300)) : null,
        ),
        metrics.length === 0
            ? div(
                  { class: "empty wide" },
                  p(null, "No metrics yet. Report one in your training code:"),
                  pre(
                      null,
                      code(
                          null,
                          "core_context.train.report_validation_metrics(steps_completed=n, metrics={'val_loss': 0.3})",
                      ),
                  ),
              )
            : curves.value === null
              ? LoadingBar({})
              : charts.map((data, at) =>
                    div(
                        { key: data.label, class: at === 0 ? "wide" : "" },
                        Chart({ data, cursor: `trial-${x}`, height: at === 0 ? 260 : 180 }),
                    ),
                ),
        selection.all.length > limit.value
            ? button(
                  {
                      type: "button",
                      class: "wide",
                      onClick: () => {
                          limit.value += CHART_LIMIT;
                      },
                  },
                  `${plural(selection.all.length - limit.value, "more metric")}: show ${Math.min(CHART_LIMIT, selection.all.length - limit.value)}`,
              )
            : null,
        log.length
            ? div(
                  { class: "wide" },
                  div(
                      { class: "section-head" },
                      span({ class: "chart-title" }, "Last lines"),
                      a({ href: href(`trials/${trial.id}/log`) }, "Full log"),
                      code(null, `det trial logs -f ${trial.id}`),
                  ),
                  pre(
                      { class: "log-tail", tabIndex: 0, "aria-label": "The last lines of the log" },
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
