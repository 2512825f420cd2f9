/** Who keeps how many bytes of checkpoints, and the room that is left for more. */
import { get } from "../api/http.js";
import { reconnects } from "../api/state.js";
import { bytes, count, visible } from "../lib/format.js";
import { PartError, useLoad } from "../ui/query.js";
import { href, location, setQuery } from "../ui/router.js";
import { LoadingBar } from "../ui/shell.js";
import { Table, useRows } from "../ui/table.js";
import { component, tags } from "../ui/tags.js";

/** @import { StorageShare, StorageUsage } from "../../types/api.d.ts" */

const { a, button, div, h2, p, span } = tags;

const MAX_HEIGHT = 300; // pixels of the table
const ROW = 28;
const HEAD = 34;
const KINDS = /** @type {const} */ (["experiment", "owner", "workspace"]);

export const StorageSection = component(() => {
    const asked = location.value.query.get("by") ?? "";
    const by = KINDS.find(kind => kind === asked) ?? "experiment";
    const { data, error } = useLoad(`${by} ${reconnects.value}`, () => get(`api/x1/storage/usage?by=${by}`));
    const usage = /** @type {StorageUsage | null} */ (data);
    return div(
        null,
        div(
            { class: "section-head" },
            h2(null, "Checkpoints"),
            KINDS.map(kind =>
                button(
                    {
                        key: kind,
                        type: "button",
                        class: "switch",
                        "aria-pressed": kind === by,
                        onClick: () => setQuery({ by: kind === "experiment" ? null : kind }),
                    },
                    `by ${kind}`,
                ),
            ),
        ),
        error ? PartError({ error }) : usage ? Shares({ usage, by }) : LoadingBar({}),
    );
});

const Shares = component((/** @type {{ usage: StorageUsage, by: string }} */ { usage, by }) => {
    const rows = useRows(usage.shares, by);
    const largest = usage.shares[0]?.size ?? 0;
    const column = (/** @type {string} */ key, /** @type {string} */ title, /** @type {number} */ width) => ({
        key,
        title,
        width,
        unsorted: true,
    });
    const room =
        usage.free === null
            ? "its store does not say how much room is left"
            : `${bytes(usage.free)} of ${bytes(usage.total ?? 0)} are free`;
    return div(
        null,
        p({ class: "muted" }, `The site's storage is ${visible(usage.place || "not known", 200)}; ${room}.`),
        usage.shares.length === 0
            ? p({ class: "muted" }, "No checkpoints are kept.")
            : div(
                  {
                      class: "share-table",
                      style: { height: `${Math.min(MAX_HEIGHT, usage.shares.length * ROW + HEAD)}px` },
                  },
                  Table({
                      label: `Checkpoints by ${by}`,
                      rows,
                      rowKey: (/** @type {StorageShare} */ share) => String(share.id),
                      address: (/** @type {StorageShare} */ share) => addressOf(by, share),
                      columns: [
                          {
                              ...column("name", by[0]?.toUpperCase() + by.slice(1), 240),
                              cell: (/** @type {StorageShare} */ share) =>
                                  a(
                                      { href: addressOf(by, share), tabIndex: -1 },
                                      by === "experiment"
                                          ? `${share.id} ${visible(share.name, 80)}`
                                          : visible(share.name, 80),
                                  ),
                          },
                          ...(by === "experiment"
                              ? [
                                    {
                                        ...column("owner", "Owner", 120),
                                        cell: (/** @type {StorageShare} */ share) => visible(share.owner, 60),
                                    },
                                    {
                                        ...column("workspace", "Workspace", 140),
                                        cell: (/** @type {StorageShare} */ share) => visible(share.workspace, 60),
                                    },
                                ]
                              : []),
                          {
                              ...column("share", "Share", 160),
                              cell: (/** @type {StorageShare} */ share) =>
                                  span(
                                      { class: "bar", "aria-hidden": "true" },
                                      span({
                                          style: { width: `${largest ? (100 * share.size) / largest : 0}%` },
                                      }),
                                  ),
                          },
                          {
                              ...column("size", "Size", 100),
                              align: /** @type {const} */ ("right"),
                              cell: (/** @type {StorageShare} */ share) => bytes(share.size),
                          },
                          {
                              ...column("checkpoints", "Checkpoints", 120),
                              align: /** @type {const} */ ("right"),
                              cell: (/** @type {StorageShare} */ share) => count(share.checkpoints),
                          },
                      ],
                  }),
              ),
    );
});

/** @param {string} by @param {StorageShare} share */
function addressOf(by, share) {
    if (by === "experiment") return href(`experiments/${share.id}/checkpoints`);
    const key = by === "owner" ? "user" : "workspace";
    const value = /[\s",]/.test(share.name) ? JSON.stringify(share.name) : share.name;
    return href("experiments", { filter: `${key}:${value}` });
}
