/** News of what has changed on the master: until it sends them itself, every topic has some every five seconds. */

/** @typedef {{ topic: string, seq: number, rows?: unknown[] }} News */

const EVERY = 5000; // ms

/**
 * Calls `heard` when something of a topic has changed.
 * @param {string} topic as `experiment:5`
 * @param {(news: News) => void} heard
 * @returns {() => void} ends it
 */
export function follow(topic, heard) {
    let seq = 0;
    const timer = setInterval(() => {
        seq += 1;
        if (!document.hidden) heard({ topic, seq });
    }, EVERY);
    return () => clearInterval(timer);
}
