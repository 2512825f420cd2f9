/** What the profiler has measured on a trial's nodes and their GPUs; gaps are times without a job. */
import { useEffect, useMemo } from "../../vendor/preact/hooks.js";
import { useSignal } from "../../vendor/signals/signals.js";
import { get } from "../api/http.js";
import { plural, visible } from "../lib/format.js";
import { Chart } from "../ui/chart.js";
import { Waiting } from "../ui/shell.js";
import { component, tags } from "../ui/tags.js";

/** @import { TrialView } from "./trial.js" */
/** @import { Machine, MachineSeries } from "../../types/api.d.ts" */

const { code, div, p, pre } = tags;

const UNITS = /** @type {Record<string, string>} */ ({
    gpu_util: "%",
    gpu_free_memory: "bytes",
    simple_cpu_util: "%",
    cpu_util_simple: "%",
    memory_free: "GB",
    free_memory: "GB",
    disk_iops: "operations a second",
    disk_throughput_read: "bytes a second",
    disk_throughput_write: "bytes a second",
    net_throughput_recv: "bytes a second",
    net_throughput_sent: "bytes a second",
});

export const Tab = component((/** @type {{ view: TrialView }} */ { view }) => {
    const { trial } = view.board;
    const found = useSignal(/** @type {Machine | null} */ (null));
    const said = useSignal("");
    useEffect(() => {
        get(`api/x1/trials/${trial.id}/machine`).then(
            answer => {
                found.value = answer;
            },
            error => {
                said.value = error.message;
            },
        );
    }, [trial.id, trial.steps]);
    const charts = useMemo(() => chartsOf(found.value?.series ?? [], trial), [found.value]);
    if (said.value) return div({ class: "empty", role: "alert" }, p(null, visible(said.value, 500)));
    if (!found.value) return Waiting({});
    if (charts.length === 0) {
        return div(
            { class: "empty" },
            p(null, "Nothing was measured. In the configuration of the next experiment:"),
            pre(null, code(null, "profiling:\n  enabled: true\n")),
        );
    }
    const { total, series } = found.value;
    return div(
        { class: "tab-columns" },
        total > series.length
            ? p(
                  { class: "muted wide" },
                  `The first ${series.length} of ${plural(total, "series", "series")} are shown.`,
              )
            : null,
        charts.map(data => div({ key: data.label }, Chart({ data, cursor: "machine", height: 180 }))),
    );
});

/**
 * A chart for each kind of measurement, a line for each node or GPU, over one time axis.
 * @param {MachineSeries[]} series
 * @param {{ id: number, started: number }} trial
 */
function chartsOf(series, trial) {
    /** @type {Map<string, MachineSeries[]>} */
    const kinds = new Map();
    for (const one of series) kinds.set(one.name, [...(kinds.get(one.name) ?? []), one]);
    return [...kinds].map(([name, members]) => {
        const moments = [...new Set(members.flatMap(one => one.at))].sort((a, b) => a - b);
        const places = new Map(moments.map((at, place) => [at, place]));
        return {
            label: name.replaceAll("_", " "),
            xTitle: "hours since its start",
            yTitle: UNITS[name] ?? name,
            x: moments.map(at => (at - trial.started) / 3600),
            series: members.map(one => {
                /** @type {(number | null)[]} */
                const y = new Array(moments.length).fill(null);
                for (const [at, moment] of one.at.entries()) y[places.get(moment) ?? 0] = one.values[at] ?? null;
                return { name: one.gpu ? `${one.node} ${one.gpu}` : one.node, y };
            }),
            source: `trial ${trial.id}`,
        };
    });
}
